"""What is marked in the page, counted character by character in the browser, is what the metrics count."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rag_eval import (
    ChunkLevelGroundTruth,
    Query,
    TokenLevelGroundTruth,
    generate_chunk_id,
    write_chunk_level,
    write_token_level,
)
from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.ground_truth.copies import credit_copies
from rag_eval.metrics.coverage import SpanCoverage
from rag_eval.metrics.metric import Cut
from rag_eval.metrics.object_scoring import rows_of_objects
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.question_data import pack_overlay
from rag_eval.reports.question_tables import questions_of
from rag_eval.reports.report import build_report
from rag_eval.reports.write import keep_report, write_report
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationFailure
from rag_eval.results.run_scores import read_scores
from rag_eval.sample import CORPUS
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus
from tests.chain import run_benchmark
from tests.reports.conftest import Kept, Opened, run_and_report

OpenReport = Callable[..., Opened]
Counts = dict[str, dict[str, int]]

# Opens one question after the other for every pair of sides, and counts the code points that are marked, each place
# once. The list must show all questions as in the dataset: the first is asked for by address, the others stepped to.
COUNT = """
async ([queries, all, sides, ks]) => {
  const pane = document.getElementById("question");
  const list = document.getElementById("list");
  pane.style.display = "none"; // to be counted, not looked at: laying it out would take most of the time
  const later = () => new Promise((done) => setTimeout(done, 0));
  const marked = (marks) => {
    const places = new Set();
    for (const mark of marks) {
      const [document, start, end] = mark.dataset.at.split(":").map(Number);
      if ([...mark.textContent].length !== end - start) throw new Error(`${mark.textContent} is not at ${start}`);
      for (let place = start; place < end; place++) places.add(`${document} ${place}`);
    }
    return places.size;
  };
  const counts = {};
  for (let a = 0; a < sides; a += 2) {
    for (const k of ks) {
      for (const query of all) {
        const drawing = [query, a, (a + 1) % sides, k].join(" ");
        if (query === all[0]) {
          location.hash = `q=${encodeURIComponent(query)}&a=${a}&b=${(a + 1) % sides}&cut=${k}&order=dataset`;
          for (let turn = 0; pane.dataset.drawn !== drawing && turn < 2000; turn++) await later();
        } else {
          list.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" }));
        }
        if (pane.dataset.drawn !== drawing) throw new Error(`${pane.dataset.drawn} is open in place of ${drawing}`);
        if (!queries.includes(query)) continue;
        for (const side of pane.querySelectorAll(".side")) {
          const own = pane.querySelector(`.hits[data-side="${side.dataset.side}"]`);
          const found = { hits: Number(side.dataset.hits) };
          for (const kind of ["found", "missed"]) found[kind] = marked(own.querySelectorAll(`mark.${kind}`));
          for (const kind of ["found", "missed", "surplus"]) {
            found[`${kind}, said`] = Number(side.querySelector(`.count.${kind}`).dataset.amount);
          }
          counts[`${query} ${side.dataset.side} ${k}`] = found;
        }
      }
    }
  }
  pane.style.display = "";
  return counts;
}
"""


# What is relevant to a question as it stands in the page, and every other text with the place it is from.
READ = """
async ([query]) => {
  const pane = document.getElementById("question");
  location.hash = `q=${encodeURIComponent(query)}&a=0&b=1&cut=5&order=dataset`;
  dispatchEvent(new Event("hashchange")); // the address may be this one already
  for (let turn = 0; pane.dataset.drawn !== `${query} 0 1 5`; turn++) {
    if (turn > 2000) throw new Error(`${query} was not opened`);
    await new Promise((done) => setTimeout(done, 0));
  }
  for (const details of pane.querySelectorAll("details")) {
    details.open = true;
    details.dispatchEvent(new Event("toggle")); // at once, not when the browser gets to it
  }
  for (const button of pane.querySelectorAll(".fold")) button.click();
  const relevant = new Map();
  for (const mark of pane.querySelectorAll('.hits[data-side="0"] mark')) {
    const start = Number(mark.dataset.at.split(":")[1]);
    [...mark.textContent].forEach((letter, i) => relevant.set(start + i, letter));
  }
  const letters = [...relevant].sort((x, y) => x[0] - y[0]).map(([, letter]) => letter);
  const titles = [...pane.querySelectorAll(".text")].map((text) => [text.dataset.at, text.textContent]);
  return [letters.join(""), titles];
}
"""


def counted(report: Opened, kept: Kept, sides: int, ks: list[int], queries: list[str] | None = None) -> Counts:
    """The counts of all queries, or of some."""
    everything = all_queries(kept)
    counts: Counts = report.page.evaluate(COUNT, [queries or everything, everything, sides, ks])
    return counts


def by_query(kept: Kept, table: str) -> dict[str, list[CharacterSpan]]:
    outcome = kept.outcome
    reference = outcome.inputs.truth.answers if table == "truth" else outcome.configurations[int(table)].hits
    places: dict[str, list[CharacterSpan]] = {}
    for row in kept.workspace.read_table(reference).to_pylist():
        places.setdefault(row["query_id"], []).append(CharacterSpan(row["doc_id"], row["start"], row["end"]))
    return places


def expected_counts(kept: Kept, queries: list[str], ks: list[int], sides: int | None = None) -> Counts:
    truth = by_query(kept, "truth")
    ranked = [kept.outcome.configurations.index(one) for one in kept.outcome.ranked()[:sides]]
    counts: Counts = {}
    for side, number in enumerate(ranked):
        hits = by_query(kept, str(number))
        for query in queries:
            case = SpanCoverage(*rows_of_objects([hits.get(query, [])], [truth.get(query, [])]))
            for k in ks:
                found = int(case.covered(Cut("hits", k))[0])
                amounts = {
                    "found": found,
                    "missed": int(case.truth[0]) - found,
                    "surplus": int(case.retrieved(Cut("hits", k))[0]) - found,
                }
                said = {f"{kind}, said": amount for kind, amount in amounts.items()}
                seen = {kind: amounts[kind] for kind in ("found", "missed")}
                counts[f"{query} {side} {k}"] = seen | said | {"hits": len(hits.get(query, [])[:k])}
    return counts


def all_queries(kept: Kept) -> list[str]:
    ids: list[str] = kept.workspace.read_table(kept.outcome.inputs.truth.queries).column("query_id").to_pylist()
    return ids


def test_marks_equal_the_metrics_counts_for_every_query_of_the_sample(
    sample_run: Kept, open_report: OpenReport
) -> None:
    report = open_report(sample_run.page)
    queries = all_queries(sample_run)
    counts = counted(report, sample_run, 4, [5])
    assert len(counts) == 4 * 72
    assert counts == expected_counts(sample_run, queries, [5], 4)
    some = queries[::12]
    assert counted(report, sample_run, 4, [1, 3, 10], some) == expected_counts(sample_run, some, [1, 3, 10], 4)
    assert report.messages == []


def test_what_is_not_carried_is_said_and_still_counted(
    sample_run: Kept, open_report: OpenReport, tmp_path: Path
) -> None:
    workspace, outcome = sample_run.workspace, sample_run.outcome
    questions = questions_of(workspace, outcome, read_scores(workspace, outcome))
    report = build_report(workspace, outcome)
    write_report(
        workspace, replace(report, overlay=pack_overlay(questions, most_characters=45_000)), tmp_path / "r.html"
    )
    opened = open_report(tmp_path / "r.html")
    notice = opened.page.locator("#questions .notice").inner_text()
    assert "too many for one page: only the text around" in notice
    queries = all_queries(sample_run)[:12]
    counts, expected = counted(opened, sample_run, 2, [5], queries), expected_counts(sample_run, queries, [5])
    for key, found in counts.items():
        for kind in ("found", "missed", "surplus"):
            assert found[f"{kind}, said"] == expected[key][f"{kind}, said"]
        assert found["missed"] == expected[key]["missed"]
    opened.page.locator("body").press("o")
    opened.waits_for("document.querySelector('#question').textContent.includes('not carried in this report')")
    assert opened.messages == []


NASTY = (
    "\ufeff# Überschrift 🚢🚢\r\n\r\n<script>window.pwned = 1</script> </script><script>window.pwned = 2</script>\r\n"
    "<!-- --> <img src=x onerror='window.pwned=3'> & &lt; ]]> \u2028\u2029 \0 \x1b[31m [bold]x[/bold] <|endoftext|>\n\n"
    "👩‍👩‍👧‍👦 é e\u0301 中文字符 שלום \u202eabc\u202c 🇳🇴 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \t ${x} `y` $policy\n\n"
) * 12
SPANS = [(0, 40), (30, 260), (3, 4), (len(NASTY) - 30, len(NASTY)), (100, 1400)]


OTHER = "Nothing is here. " * 60
NAME = "</script><script>window.pwned=6</script> \u2028\u202e<img src=x onerror='window.pwned=7'> \"${{x}}\" {number}"


def renamed(outcome: BenchmarkOutcome) -> BenchmarkOutcome:
    """The outcome with names and a failure as bad as a model's name or a service's answer can make them."""
    named = [
        one.model_copy(update={"name": NAME.format(number=number)}) for number, one in enumerate(outcome.configurations)
    ]
    failure = ConfigurationFailure(configuration=named[0].configuration, reason=NAME.format(number="reason"))
    failures = {NAME.format(number="failed"): failure}
    return outcome.model_copy(update={"configurations": named, "failures": failures})


def test_hostile_text_stays_text_and_is_counted_exactly(open_report: OpenReport, tmp_path: Path) -> None:
    folder = tmp_path / "<script>window.pwned=8;'\" \u2028"
    folder.mkdir()
    doc_id = "<img src=x onerror=window.pwned=4> 🚢.md"
    (folder / doc_id).write_text(NASTY, encoding="utf-8", newline="")
    (folder / "other.md").write_text(OTHER)
    lines = []
    for number, (start, end) in enumerate(SPANS):
        span = {"doc_id": doc_id, "start": start, "end": end, "text": NASTY[start:end]}
        query = f"</script><script>window.pwned=5</script> <!-- {number} 🚢?"
        metadata = {"kind": f"<b>bold</b> {number % 2}"}
        lines.append(json.dumps({"query": query, "relevant_spans": [span], "metadata": metadata}))
    (tmp_path / "truth.jsonl").write_text("\n".join(lines))
    config = BenchmarkConfig(
        corpus=folder,
        ground_truth=tmp_path / "truth.jsonl",
        chunkers=[
            RecursiveCharacterChunker(chunk_size=size, chunk_overlap=overlap) for size, overlap in ((90, 30), (400, 0))
        ],
        retrieval=["bm25"],
        k=[2, 5],
        copies="off",
    )
    workspace = Workspace(root=tmp_path / "work")
    kept = Kept(workspace, renamed(run_benchmark(workspace, config)))
    keep_report(workspace, kept.outcome)
    report = open_report(kept.page)
    queries = all_queries(kept)
    assert counted(report, kept, 2, [2, 5]) == expected_counts(kept, queries, [2, 5])
    texts = {doc_id: NASTY, "other.md": OTHER}
    titles = sorted(texts)  # documents are numbered in this order
    for query, (start, end) in zip(queries, SPANS, strict=True):
        relevant, shown = report.page.evaluate(READ, [query])
        assert relevant == NASTY[start:end]
        assert shown
        for place, text in shown:
            number, first, last = map(int, place.split(":"))
            assert text == texts[titles[number]][first:last]
    assert report.page.evaluate("window.pwned") is None
    assert doc_id in report.page.locator("#question .where bdi").all_inner_texts()
    seen = NAME.replace("\u202e", "\\u202e").format(number="reason")
    assert seen.replace("\u2028", " ") in report.page.locator("#failures").inner_text().replace("\u2028", " ")
    assert NAME.format(number=1) in report.page.locator("#side-a option").all_text_contents()
    assert "kind: <b>bold</b> 1 (2)" in report.page.locator("#tag option").all_inner_texts()
    assert report.page.locator("img").count() == 0
    assert report.page.locator("script").count() == report.page.locator("body > script, head > script").count()
    assert report.messages == []
    assert report.requests == [kept.page.as_uri()]


def test_chunk_level_shows_whole_chunks_found_and_missed(open_report: OpenReport, tmp_path: Path) -> None:
    chunker = RecursiveCharacterChunker(chunk_size=700)
    texts = [text for document in Corpus.from_folder(CORPUS) for text in chunker.chunk(document.content)]
    truth = [
        ChunkLevelGroundTruth(
            Query.from_text(texts[place][:80], {"chunker": chunker.name}),
            [generate_chunk_id(texts[place]), generate_chunk_id(texts[place + 9])],
        )
        for place in (3, 20, 40)
    ]
    write_chunk_level(tmp_path / "truth.jsonl", truth)
    config = BenchmarkConfig(
        corpus=CORPUS,
        ground_truth=tmp_path / "truth.jsonl",
        evaluation_type="chunk-level",
        objective="chunk_recall@5",
        chunkers=[chunker],
        retrieval=["bm25", "vector"],
        k=[1, 5],
    )
    kept = run_and_report(tmp_path / "work", config)
    report = open_report(kept.page)
    assert "of the relevant chunks in the first five hits" in report.page.locator("#answer").inner_text()
    counts = counted(report, kept, 2, [1, 5])
    relevant = {item.query.id: set(item.relevant_chunk_ids) for item in truth}
    for side, one in enumerate(kept.outcome.ranked()):
        hits = kept.workspace.read_table(one.hits).to_pylist()
        for query, wanted in relevant.items():
            for k in (1, 5):
                found = {row["chunk_id"] for row in hits if row["query_id"] == query and row["rank"] <= k}
                said = counts[f"{query} {side} {k}"]
                assert said["found, said"] == len(found & wanted)
                assert said["missed, said"] == len(wanted - found)
                assert said["surplus, said"] == len(found - wanted)
    assert report.messages == []


def grouped_counts(kept: Kept, k: int) -> Counts:
    """Character by character: of each group the best covered member is found or missed, of others what is retrieved."""
    groups: dict[str, dict[int, list[set[tuple[str, int]]]]] = {query: {} for query in all_queries(kept)}
    for row in kept.workspace.read_table(kept.outcome.inputs.truth.answers).to_pylist():
        member = {(row["doc_id"], place) for place in range(row["start"], row["end"])}
        groups[row["query_id"]].setdefault(row["group"], []).append(member)
    counts: Counts = {}
    for side, one in enumerate(kept.outcome.ranked()):
        hits = by_query(kept, str(kept.outcome.configurations.index(one)))
        for query, evidence in groups.items():
            got = {(hit.doc_id, place) for hit in hits[query][:k] for place in range(hit.start, hit.end)}
            best = [max(members, key=lambda member: len(member & got) / len(member)) for members in evidence.values()]
            relevant = {place for members in evidence.values() for member in members for place in member}
            missed = {place for member in best for place in member} - got
            amounts = {"found": len(got & relevant), "missed": len(missed), "surplus": len(got - relevant)}
            said = {f"{kind}, said": amount for kind, amount in amounts.items()}
            seen = {kind: amounts[kind] for kind in ("found", "missed")}
            counts[f"{query} {side} {k}"] = seen | said | {"hits": len(hits[query][:k])}
    return counts


def test_a_found_copy_is_found_and_one_that_was_not_retrieved_is_not_missed(
    open_report: OpenReport, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    rules = [
        f"Rule {n}: the harbour master of basin {n} shall log every vessel of class {n} by noon." for n in range(6)
    ]
    for ship in range(4):  # every rule stands in two documents, the first in all
        others = [rule for n, rule in enumerate(rules) if n == 0 or n % 4 in (ship, (ship + 1) % 4)]
        text = f"# Vessel {ship}\n\n" + "\n\n".join([f"Notes on ship{ship} and its crew. " * 3, *others])
        (tmp_path / "docs" / f"{ship}.md").write_text(text, encoding="utf-8")
    corpus = Corpus.from_folder(tmp_path / "docs")
    firsts = [next(one for one in corpus if rule in one.content) for rule in rules]
    asked = [
        TokenLevelGroundTruth(
            Query.from_text(f"Who logs class {n} in basin {n}?"),
            [one.span(one.content.index(rule), one.content.index(rule) + len(rule))],
        )
        for n, (rule, one) in enumerate(zip(rules, firsts, strict=True))
    ]
    write_token_level(tmp_path / "truth.jsonl", credit_copies(asked, corpus))
    config = BenchmarkConfig(
        corpus=tmp_path / "docs",
        ground_truth=tmp_path / "truth.jsonl",
        chunkers=[RecursiveCharacterChunker(chunk_size=size, chunk_overlap=0) for size in (50, 120)],
        retrieval=["bm25"],
        k=[1, 4],
    )
    kept = run_and_report(tmp_path / "work", config)
    report = open_report(kept.page)
    for k in (1, 4):
        assert counted(report, kept, 2, [k]) == grouped_counts(kept, k)
    whole = kept.outcome.ranked()[0].metrics
    assert whole["span_recall@4"] == 1  # with a copy or two that were not retrieved, and none missed
    assert all(one["missed"] == 0 for name, one in grouped_counts(kept, 4).items() if name.endswith(" 0 4"))
    tags = {"1 copy of the evidence", "3 copies of the evidence"}
    tagged = report.page.locator("#question header .tag")
    found = {tagged.inner_text()}
    report.page.locator("#list").press("Home")
    found.add(tagged.inner_text())
    assert found == tags
    assert report.messages == []
