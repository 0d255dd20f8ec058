"""The page of an experiment: whole in one file, inert whatever tasks and models wrote, and bounded."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rag_eval.experiments.evaluators import ExactMatch, LevenshteinSimilarity
from rag_eval.experiments.file_outputs import HtmlOutput, JsonOutput
from rag_eval.experiments.results import ExperimentResult, Score
from rag_eval.experiments.running import evaluatorq

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = [
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<!-- \u2028 ]]> &lt; ${title} $title",
    "\ud800 half a pair, NUL \x00, \x1b[31m, \u202e right to left",
    "emoji 🛳️ 汉字 عربي",
]


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


def test_a_page_of_many_samples_carries_the_first_and_what_failed() -> None:
    texts = ["boom" if number in (7, 40, 60, 80) else f"text {number}" for number in range(100)]
    data = [{"input": text, "output": text} for text in texts]
    small = Path(run(data, [shout], samples=10, failures=2).saved["html"]).read_text()
    assert "Shown are the first 10 of 100 samples and the first 2 later ones that failed; all are in Voices-i-" in small
    assert small.count('"index":') == 12
    all_failed = Path(run(data, [shout], samples=10, failures=50).saved["html"]).read_text()
    assert "first 10 of 100 samples and 3 later ones that failed" in all_failed
    long = Path(run([{"input": "x" * 1_000_000, "output": "y"}] * 3, [same]).saved["html"]).read_text()
    assert len(long) < 200_000


def test_a_reader_searches_filters_and_orders(chromium: "Browser") -> None:
    data = [{"input": text, "output": text.upper()} for text in [*HOSTILE, "boom", *(f"plain {n}" for n in range(120))]]
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
    assert page.locator("h1").inner_text() == "Voices <i>"
    assert page.locator(".averages tbody tr").count() == 6
    assert "125" in page.locator(".averages tbody tr").first.inner_text()
    assert page.locator("#failures li").all_inner_texts() == ["shout: 1 time"]
    assert rows.count() == 100
    page.locator("#more").click()
    assert rows.count() == 126
    assert rows.nth(0).locator(".content").first.inner_text() == HOSTILE[0]
    page.locator("#search").fill("汉字 EMOJI")
    assert page.locator("#count").inner_text() == "1 sample"
    rows.first.locator("summary").first.click()
    assert "because EMOJI 🛳️ 汉字" in rows.first.locator("dd").first.inner_text()
    page.locator("#search").fill("")
    page.locator("#shown").select_option("failed")
    assert rows.count() == 1
    assert rows.first.locator(".problem").first.inner_text() == "ValueError: <b>no</b> boom"
    page.locator("#shown").select_option("all")
    page.locator("#order").select_option(label="lowest same/LevenshteinSimilarity")
    values = [float(value.strip(" ✓✗")) for value in page.locator("#rows tr td:last-child").all_inner_texts()]
    assert values == sorted(values)
    assert said == []
    assert len(requests) == 1
    context.close()
