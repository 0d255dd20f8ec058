"""What the model quotes is placed in the document, or its question is dropped with the reason."""

from collections.abc import Callable

import pytest

from rag_eval import FilterOptions, GenerationOptions, TokenLevelSyntheticDatasetGenerator
from rag_eval.ground_truth.check import check_against_corpus
from tests.doubles.openai_chat import answering, excerpt
from tests.doubles.openai_server import OpenAIServer
from tests.generation.corpora import corpus_of, harbour_text

Make = Callable[..., TokenLevelSyntheticDatasetGenerator]
TEXT = harbour_text("Storvåg")
SENTENCE = "Diesel is sold in Storvåg from a barge that carries a yellow lamp."


def test_excerpts_that_were_altered_on_their_way_are_found_where_they_stand(
    token_level: Make, server: OpenAIServer
) -> None:
    corpus = corpus_of({"a.md": TEXT.replace("old pier", "“old” pier")})
    server.reply = answering(
        (
            "How much does drinking supply cost?",
            [excerpt("Fresh  water in\nStorvåg costs forty kroner for every cubic metre.")],
        ),
        (
            "Which side is for fishermen?",
            [excerpt('Fishing boats in Storvåg moor along the inner side of the "old" pier.')],
        ),
        ("What load can be hoisted?", [excerpt("The crane of Storvåg lifts twelv tonnes at most in calm wether.")]),
    )
    generator = token_level(corpus, options=GenerationOptions(filters=FilterOptions(min_relevance=None)))
    truth = generator.generate(3, upload_to_langsmith=False)
    check_against_corpus(truth, corpus)
    assert [item.relevant_spans[0].text for item in truth] == [
        "Fresh water in Storvåg costs forty kroner for every cubic metre.",
        "Fishing boats in Storvåg moor along the inner side of the “old” pier.",
        "The crane of Storvåg lifts twelve tonnes at most in calm weather.",
    ]


def test_several_excerpts_and_repeated_text_are_placed_by_what_stands_before(
    token_level: Make, server: OpenAIServer
) -> None:
    open_, phone = "The office is open until noon.", "The phone is 5501 at all times."
    text = f"Monday\n{open_}\n\nFriday\n{open_}\n\n{phone}\n"
    friday = excerpt(open_, before="Friday")
    server.reply = answering(
        ("When can I go to the office on Friday, or ring it?", [friday, excerpt(phone), friday]),
        ("Until when is the office open?", [excerpt(open_)]),
    )
    filters = FilterOptions(max_leakage=None, min_relevance=None)
    generator = token_level(corpus_of({"hours.md": text}), options=GenerationOptions(filters=filters))
    (item,) = generator.generate(2, upload_to_langsmith=False)
    assert [(span.start, span.text) for span in item.relevant_spans] == [
        (text.rindex(open_), open_),
        (text.index(phone), phone),
    ]
    assert generator.report.dropped["excerpt ambiguous"].count == 1


@pytest.mark.parametrize(
    ("question", "excerpts", "reason"),
    [
        ("Where is fuel sold?", [excerpt("Petrol is available from the shop by the church.")], "excerpt not found"),
        ("Where is fuel sold?", [excerpt(SENTENCE), excerpt("It is also quite expensive there.")], "excerpt not found"),
        ("Where is fuel sold?", [excerpt(SENTENCE, document="D2")], "unknown document"),
        ("Where is fuel sold?", [], "no excerpt"),
        ("Where is fuel sold?", [excerpt(" \n")], "no excerpt"),
        (" \n ", [excerpt(SENTENCE)], "unusable question"),
        ("Where\x1b[31m is fuel sold?", [excerpt(SENTENCE)], "unusable question"),
        ("\ud800 is fuel sold?", [excerpt(SENTENCE)], "unusable question"),
        ("why " * 300, [excerpt(SENTENCE)], "unusable question"),
        ("Is diesel sold in Storvåg from a barge that carries a lamp?", [excerpt(SENTENCE)], "copies the excerpt"),
        ("Who conducts the orchestra in Vienna tonight?", [excerpt(SENTENCE)], "excerpt not relevant"),
        ("Where is fuel sold?", [excerpt("Diesel")], "excerpt too short"),
    ],
)  # fmt: skip
def test_what_cannot_stand_is_dropped_with_its_reason(
    token_level: Make, server: OpenAIServer, question: str, excerpts: list[dict[str, str]], reason: str
) -> None:
    server.reply = answering((question, excerpts))
    generator = token_level(corpus_of({"a.md": TEXT}))
    assert generator.generate(1, upload_to_langsmith=False) == []
    report = generator.report
    assert (report.asked, report.kept) == (1, 0)
    (dropped,) = report.dropped.items()
    assert (dropped[0], dropped[1].count) == (reason, 1)
    assert dropped[1].examples[0].isprintable()
