"""The page of an experiment: whole in one file, inert whatever tasks and models wrote, and bounded."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rag_eval.experiments.evaluators import ExactMatch, LevenshteinSimilarity
from rag_eval.experiments.file_outputs import HtmlOutput, JsonOutput
from rag_eval.experiments.results import ExperimentResult, Score
from rag_eval.experiments.running import evaluatorq
from tests.reports.conftest import findings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = [
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<!-- \u2028 ]]> &lt; ${title} $title",
    "\ud800 half a pair, NUL \x00, \x1b[31m, \u202e right to left",
    "emoji 🛳️ 汉字 عربي",
]


LONG = "long words " * 60 + "end"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shout(row: Any) -> str:
    if row["input"] == "boom":
        raise ValueError("<b>no</b> boom")
    return str(row["input"]).upper()


def same(row: Any) -> str:
    return str(row["input"])


def graded(result: str, expected: Any) -> Score:
    return Score(0.25, f"because {result}", passed="EMOJI" in result)


def run(data: list[dict[str, Any]], tasks: list[Any], **limits: int) -> ExperimentResult:
    return evaluatorq(
        "Voices <i>",
        data=data,
        tasks=tasks,
        evaluators=[ExactMatch, LevenshteinSimilarity, graded],
        outputs=[JsonOutput("out"), HtmlOutput("out", **limits)],
        raise_errors=False,
    )


def test_the_page_stands_beside_the_json() -> None:
    result = run([{"input": "a", "output": "A"}], [shout])
    assert result.path is not None
    assert Path(result.saved["html"]) == result.path.with_suffix(".html")
    page = Path(result.saved["html"]).read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_an_interval_without_0_is_explained_where_the_test_shows_no_difference() -> None:
    def page(differing: int) -> str:
        data = [{"input": "a" if n < differing else "A", "output": "A"} for n in range(20)]
        return Path(run(data, [same, shout]).saved["html"]).read_text()

    explained = (
        "; the interval of one pair is not corrected, and may exclude 0 although the corrected test is not significant."
    )
    few = page(4)
    assert '+0.200</strong> <span class="small">[+0.008, +0.392]</span>' in few
    assert "<td>no difference shown, p = 0.12" in few
    assert "p corrected for the number of tasks" + explained in few
    many = page(12)
    assert "<td>better, p " in many
    assert "<td>the same</td>" in many
    assert explained not in many


def test_a_page_of_many_samples_carries_the_first_and_what_failed() -> None:
    texts = ["boom" if number in (7, 40, 60, 80) else f"text {number}" for number in range(100)]
    data = [{"input": text, "output": text} for text in texts]
    small = Path(run(data, [shout], samples=10, failures=2).saved["html"]).read_text()
    assert "Showing the first 10 of 100 samples and 2 later ones that failed; all are in Voices-i-" in small
    assert small.count('"index":') == 12
    all_failed = Path(run(data, [shout], samples=10, failures=50).saved["html"]).read_text()
    assert "first 10 of 100 samples and 3 later ones that failed" in all_failed
    long = Path(run([{"input": "x" * 1_000_000, "output": "y"}] * 3, [same]).saved["html"]).read_text()
    assert len(long) < 200_000


def test_a_reader_searches_filters_and_orders(chromium: "Browser") -> None:
    data = [
        {"input": text, "output": text.upper()}
        for text in [*HOSTILE, "boom", LONG, *(f"plain {n}" for n in range(119))]
    ]
    result = run(data, [shout, same])
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(Path(result.saved["html"]).absolute().as_uri())
    rows = page.locator("#rows tr")
    assert page.title() == "Voices <i> – rag-eval"
    assert page.locator(".run").inner_text().startswith("Voices <i> · ")
    # The verdict first, then the tasks beside each other, sample by sample.
    assert page.locator("h1").inner_text().startswith("same is worse than shout by ExactMatch (−")
    pairs = page.locator(".pairs tbody tr")
    assert pairs.count() == 3
    assert pairs.first.inner_text().split("\t")[:3] == ["ExactMatch", "same", "shout"]
    assert page.locator(".averages tbody tr").count() == 6
    page.locator(".averages").get_by_role("button", name="Mean").click()
    means = [float(text) for text in page.locator(".averages tbody td:nth-child(2)").all_inner_texts()]
    assert means == sorted(means, reverse=True)
    assert page.locator("#failures li").all_inner_texts() == ["shout: 1 time"]
    # Samples on which the tasks differ come first; any heading sorts, one way and the other.
    numbers = page.locator("#rows tr td:first-child")
    assert rows.count() == 100
    page.locator("#more").click()
    assert rows.count() == 126
    assert numbers.all_inner_texts() != sorted(numbers.all_inner_texts(), key=int)
    page.get_by_role("button", name="same/LevenshteinSimilarity").click()
    for descending in (False, True):
        cells = page.locator("#rows tr td:last-child").all_inner_texts()
        values = [float(text.strip(" ✓✗")) for text in cells if text != "failed"]
        assert values == sorted(values, reverse=descending)
        page.get_by_role("button", name="same/LevenshteinSimilarity").click()
    page.locator("#differ").click()
    page.get_by_role("button", name="#", exact=True).click()
    assert rows.nth(0).locator(".content").first.inner_text() == HOSTILE[0]
    # The whole of a long text is there on demand.
    page.locator("#search").fill("long")
    box = rows.first.locator(".content.long").first
    assert box.evaluate("e => e.scrollHeight > e.clientHeight")
    rows.first.get_by_role("button", name="whole text").first.click()
    assert rows.first.locator(".content").first.inner_text() == LONG
    page.locator("#search").fill("汉字 EMOJI")
    assert page.locator("#count").inner_text() == "1 sample"
    rows.first.locator("summary").first.click()
    assert "because EMOJI 🛳️ 汉字" in rows.first.locator("dd").first.inner_text()
    page.locator("#search").fill("")
    page.locator("#shown").select_option("failed")
    assert rows.count() == 1
    assert rows.first.locator(".problem").first.inner_text() == "ValueError: <b>no</b> boom"
    with page.expect_download() as download:
        page.locator("#samples-csv").click()
    assert len(Path(download.value.path()).read_text().splitlines()) == 2
    page.locator("#colours").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 23)"
    assert said == []
    assert len(requests) == 1
    context.close()


def test_axe_finds_nothing(chromium: "Browser") -> None:
    page = chromium.new_page()
    data = [{"input": text, "output": text.upper()} for text in (*HOSTILE, "boom", LONG)]
    page.goto(Path(run(data, [shout, same]).saved["html"]).absolute().as_uri())
    assert findings(page) == []
    page.close()
