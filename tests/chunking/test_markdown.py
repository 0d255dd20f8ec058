import pytest
from chunker_contract import check_contract
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import nasty_texts

from rag_eval.chunking.markdown import MarkdownChunker, markdown_blocks
from rag_eval.tables import chunks_from_table, chunks_to_table
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

LINE_ENDS = pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
MARKDOWN_LINES = [
    "# One", "## Two ##", "Title", "===", "---", "```", "````py", "~~~", "    ```", "| a | b |", "|---|:-:|",
    "- item", "1. item", "  more", "    # code", "> # quote", "<!--", "-->", "<pre>", "</PRE>", "text. More text", "",
    " ", "\ufeff# x",
]  # fmt: skip


def chunks(text: str, size: int = 1000) -> list[PositionAwareChunk]:
    return MarkdownChunker(size).chunk_with_positions(Document(DocumentId("d"), text))


def outline(text: str, size: int = 1000) -> list[tuple[object, str]]:
    return [(chunk.metadata["headings"], chunk.content) for chunk in chunks(text, size)]


def headings(text: str) -> list[tuple[int, str]]:
    return [(block.level, block.title) for block in markdown_blocks(text) if block.level]


@LINE_ENDS
def test_sections_follow_headings_and_know_their_path(line_end: str) -> None:
    text = "before\n\n# Title\nintro\n## A\ntext a\n### Deep\ndeep\n## B #\ntext b\n\nSetext\nover two\n======\nend\n"
    assert outline(text.replace("\n", line_end)) == [
        ([], "before"),
        (["Title"], f"# Title{line_end}intro"),
        (["Title", "A"], f"## A{line_end}text a"),
        (["Title", "A", "Deep"], f"### Deep{line_end}deep"),
        (["Title", "B"], f"## B #{line_end}text b"),
        (["Setext over two"], f"Setext{line_end}over two{line_end}======{line_end}end"),
    ]


def test_a_heading_without_text_joins_the_deeper_one_below() -> None:
    assert outline("# T\n\n## A\n\ntext\n\n## B\n\n## C\n\nmore") == [
        (["T", "A"], "# T\n\n## A\n\ntext"),
        (["T", "B"], "## B"),
        (["T", "C"], "## C\n\nmore"),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "```\n# no\n```",
        "~~~ python\n# no\n```\n# no\n~~~~",
        "````\n```\n# no\n```\n````",
        "```\n# no\n    ```\n# no\n```",
        "- item\n\n      ```\n      # no\n      ```",
        "    # no",
        "\t# no",
        "> # no",
        "<!--\n# no\n\n# no -->",
        "<pre>\n\n# no\n</pre>",
        "```\n# no, and never closed\n\n",
        "#no",
        "####### no",
        "\\# no",
    ],
)
@LINE_ENDS
def test_not_a_heading(code: str, line_end: str) -> None:
    assert headings(f"# yes\n\n{code}".replace("\n", line_end)) == [(1, "yes")]


@pytest.mark.parametrize(
    "block",
    [
        "```\n# no\n```",
        "~~~ x\n# no\n~~~~",
        "```\n# no\n# no\n```",
        "<!--\n# no\n# no\n-->",
        "- item\n\n      ```\n      # no\n      ```",
        "<!-- # no -->",
        "<!--\n# no\n-->",
        "<PRE>\n# no\n</pre> more",
        "<style># no</style>",
    ],
)
@LINE_ENDS
def test_headings_after_code_or_html_are_found(block: str, line_end: str) -> None:
    text = f"{block}\n# yes\n{block}\ntext\n===".replace("\n", line_end)
    assert headings(text) == [(1, "yes"), (1, "text")]
    borders = [text.index("# yes"), text.index("# yes") + len(f"# yes{line_end}")]
    ends = {block.start for block in markdown_blocks(text)} | {block.end for block in markdown_blocks(text)}
    assert ends >= {*borders, text.rindex("text"), len(text)}


def test_headings_of_all_kinds() -> None:
    assert headings("\ufeff# a\n   ## b\t## \n#\n###### f #x\nx\n---\npara\n# a#\n- item\n---\n") == [
        (1, "a"),
        (2, "b"),
        (1, ""),
        (6, "f #x"),
        (2, "x"),
        (1, "a#"),
    ]


def test_front_matter_is_not_a_heading() -> None:
    assert headings("---\ntitle: x\n---\n# a") == [(1, "a")]
    assert headings("---\n\ntext\n---\n") == [(2, "text")]
    assert headings("---\na: x\n\nb\n---\n") == [(2, "b")], "it has no empty line"
    assert headings("text\n---\na: x\n---\n") == [(2, "text"), (2, "a: x")], "it is at the beginning"
    assert headings("--- x\na: y\n---\n") == [(2, "--- x a: y")]


@pytest.mark.parametrize("end", ["---", "...", "--- ", "...\t"])
@LINE_ENDS
def test_front_matter_of_several_lines_is_one_block(line_end: str, end: str) -> None:
    lines = ["---", "title: x", "# not a heading", "tags:", "- a", "- b", end]
    text = line_end.join([*lines, "# Heading", "", "text", "---", ""])
    first, *rest = markdown_blocks(text)
    assert (first.start, first.end, first.level) == (0, text.index("# Heading"), 0)
    assert [(block.level, block.title) for block in rest] == [(1, "Heading"), (2, "text")]
    assert markdown_blocks(line_end.join(lines))[0].end == len(line_end.join(lines)), "nothing has to follow"


@LINE_ENDS
def test_code_and_tables_stay_whole_if_they_fit(line_end: str) -> None:
    code = "```py\nx = 1\n\ny = 2\n```".replace("\n", line_end)
    table = "| a | b |\n|---|---|\n| 1 | 2 |".replace("\n", line_end)
    text = f"{'word ' * 6}{line_end}{code}{line_end}{'word ' * 6}{line_end}{table}{line_end}"
    assert [chunk.content for chunk in chunks(text, 32)] == ["word " * 5 + "word", code, "word " * 5 + "word", table]


def test_an_oversize_block_is_cut_at_its_lines() -> None:
    code = "```py\n" + "line = 1\n" * 5 + "```"
    assert MarkdownChunker(20).chunk(code) == ["```py\nline = 1", "line = 1\nline = 1", "line = 1\nline = 1", "```"]


def test_paragraphs_and_items_are_grouped_up_to_the_size() -> None:
    text = "- one\n  more\n- two\n- three\n\nparagraph"
    assert MarkdownChunker(20).chunk(text) == ["- one\n  more\n- two", "- three\n\nparagraph"]


def test_metadata_survives_a_table() -> None:
    found = chunks("# A\n\ntext\n\n# B\n\nmore")
    assert chunks_from_table(chunks_to_table(found)) == found


@settings(deadline=None, derandomize=True, max_examples=250)
@given(
    nasty_texts()
    | st.lists(st.sampled_from(MARKDOWN_LINES), max_size=25).flatmap(
        lambda lines: st.sampled_from(["\n", "\r\n", "\r"]).map(lambda end: end.join(lines))
    ),
    st.integers(1, 60),
)
def test_contract(text: str, size: int) -> None:
    check_contract(MarkdownChunker(size), text, size)
