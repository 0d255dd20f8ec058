"""Pooling unjudged passages, on Chroma's dataset with 30 % of its spans hidden: bounds, and a judge people correct.

The judge errs on 10 to 30 % of the passages of a document, all errors of a draw being of that draw's rates. What is
hidden tells what people would say: a pooled passage is relevant that holds half of a hidden span. In each of 1,000
draws the judge errs anew and people judge another sample; the interval is to cover the precision that the configuration
has when all passages are judged rightly. The command itself is run once, with the judge behind a server on loopback.
"""

import json
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typer.testing import CliRunner

from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.cli.main import app
from rag_eval.config.models import BenchmarkConfig
from rag_eval.ground_truth.pooling import PassageGrade, with_grades
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.ground_truth.truth_files import read_token_level, write_truth
from rag_eval.metrics.metric import Cut
from rag_eval.metrics.score_tables import held_shares, score_passages
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.unjudged import unjudged_of
from rag_eval.stats.intervals import prediction_powered
from rag_eval.stats.paired_scores import Units
from rag_eval.tables import TRUTH, TruthTables, as_passages, table_of, truth_to_tables
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import PERSON, TokenLevelGroundTruth, judgements
from rag_eval.types.ids import text_sha256
from tests.bench import chroma_data
from tests.chain import run_benchmark
from tests.doubles.openai_server import JSON, OpenAIServer

HIDDEN, DRAWS, K, MODEL = 0.3, 1_000, 5, "loopback-judge"
SAMPLES = (100, 200, 300)
PART = re.compile(r"<<<(question|passage) (\w+)>>>\n(.*?)\n<<<end of \1 \2>>>", re.DOTALL)
BOUNDED = ["span_precision", "span_hit_rate", "span_mrr", "chroma_precision"]
BOUNDED_ABOVE = ["span_recall", "span_iou", "complete_evidence", "recall_within_tokens@500"]
KS = [1, 3, 5, 10]


def hide(truth: list[TokenLevelGroundTruth], rng: np.random.Generator) -> list[TokenLevelGroundTruth]:
    """The truth without 30 % of its spans; every question keeps one."""
    spans = [(n, i) for n, item in enumerate(truth) for i in range(len(item.relevant_spans))]
    left, gone = [len(item.relevant_spans) for item in truth], set()
    for place in rng.permutation(len(spans)).tolist():
        n, i = spans[place]
        if left[n] > 1 and len(gone) < HIDDEN * len(spans):
            left[n] -= 1
            gone.add((n, i))
    return [
        replace(item, relevant_spans=[one for i, one in enumerate(item.relevant_spans) if (n, i) not in gone])
        for n, item in enumerate(truth)
    ]


def is_relevant(passage: CharacterSpan, full: TokenLevelGroundTruth) -> bool:
    return any(2 * passage.overlap_chars(span) >= span.length for span in full.relevant_spans)


def loopback_judge(full: dict[str, TokenLevelGroundTruth], corpus: Corpus) -> Any:
    """A model that errs by document, with a rate of its own for each."""
    rng = np.random.default_rng(5)
    rates = dict(
        zip((document.id for document in corpus), rng.permutation(np.linspace(0.1, 0.3, len(corpus))), strict=True)
    )
    places: dict[str, CharacterSpan] = {}

    def reply(body: JSON) -> str:
        text = body["messages"][-1]["content"]
        parts = {name: found for name, _, found in PART.findall(text)}
        for document in corpus:
            start = document.content.find(parts["passage"])
            if start >= 0:
                places.setdefault(parts["passage"], document.span(start, start + len(parts["passage"])))
        passage = places[parts["passage"]]
        seed = int(text_sha256(parts["question"] + parts["passage"])[:8], 16)
        errs = np.random.default_rng(seed).random() < rates[passage.doc_id]
        return json.dumps(
            {"reason": "as it says", "grade": 3 if is_relevant(passage, full[parts["question"]]) != errs else 0}
        )

    return reply


def run() -> list[dict[str, Any]]:
    dataset = chroma_data.chroma_dataset()
    if dataset is None:
        print(f"{chroma_data.FOLDER} is absent: nothing to hide")
        return []
    corpus, truth = dataset
    shown, figures = hide(truth, np.random.default_rng(1)), []
    with tempfile.TemporaryDirectory() as folder:
        workspace, path = Workspace(root=Path(folder) / "workspace"), Path(folder) / "shown.jsonl"
        write_truth(path, shown)
        config = BenchmarkConfig(
            corpus=chroma_data.FOLDER / "corpora",
            ground_truth=[FileTruth(path)],
            chunkers=[
                FixedTokenChunker(200),
                RecursiveTokenChunker(200),
                RecursiveTokenChunker(400),
                SentenceChunker(600, 1),
            ],
            retrieval=["vector", "bm25"],
            k=KS,
            objective=f"span_precision@{K}",
        )
        outcome = run_benchmark(workspace, config)
        figures += bounds(workspace, outcome, corpus, truth, shown)
        judged = Path(folder) / "judged.jsonl"
        figures += command(workspace, outcome, corpus, truth, judged)
        figures += draws(workspace, outcome, corpus, truth, read_token_level(judged))
        figures += report(workspace, config, judged, truth)
    return figures


def figure(
    name: str, value: float, unit: str = "", target: float | None = None, *, least: bool = True
) -> dict[str, Any]:
    is_reached = target is None or (value >= target if least else value <= target)
    return {"name": name, "value": float(value), "unit": unit, "target": target, "ok": bool(is_reached)}


def values(table: pa.Table) -> Any:
    return table.column("value").to_numpy()


def bounds(workspace: Any, outcome: Any, corpus: Corpus, truth: Any, shown: Any) -> list[dict[str, Any]]:
    """How often a value by the whole truth, of a question or a mean, is outside of its bounds."""
    whole, some = truth_to_tables(truth), truth_to_tables(shown)
    outside, lower, count, means = 0, 0, 0, 0
    for one in outcome.configurations:
        hits = as_passages(workspace.read_table(one.returned))
        for names, is_both in ((BOUNDED, True), (BOUNDED_ABOVE, False)):
            low, high, real = (
                values(score_passages("token-level", hits, tables, names, KS, documents=corpus, **settings))
                for tables, settings in ((some, {}), (some, {"unjudged": "relevant"}), (whole, {}))
            )
            below = (real < low - 1e-12) if is_both else np.zeros(len(real), bool)
            outside += int((below | (real > high + 1e-12)).sum())
            lower += 0 if is_both else int((real < low - 1e-12).sum())
            count += len(real)
            for part in zip(*(np.split(each, len(each) // len(truth)) for each in (low, high, real)), strict=True):
                a, b, c = (float(one.mean()) for one in part)
                means += c > b + 1e-12 or (is_both and c < a - 1e-12)
    return [
        figure(
            f"values by the whole truth outside of their bounds, of {count:,} (questions x metrics x cuts)",
            outside,
            "",
            0,
            least=False,
        ),
        figure("means of them outside of their bounds", means, "", 0, least=False),
        figure("recall and its like below the usual value, which does not bound them", lower),
    ]


def command(workspace: Any, outcome: Any, corpus: Corpus, truth: Any, judged: Path) -> list[dict[str, Any]]:
    os.environ["OPENAI_API_KEY"] = "sk-loopback"
    full = {item.query.text: item for item in truth}
    with OpenAIServer() as server:
        server.reply = loopback_judge(full, corpus)
        asked = ["truth", "pool", outcome.run, "--workspace", str(workspace.root), "-o", str(judged), "--k", str(K)]
        asked += ["--sample", "200", "--judge", MODEL, "--base-url", server.base_url, "--concurrency", "4", "--json"]
        found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, (found.output, found.exception)
    told = json.loads(found.output)
    by_id = {item.query.id: item for item in truth}
    pairs = [
        (one.grades[MODEL] > 1, is_relevant(one.passage, by_id[item.query.id]))
        for item in read_token_level(judged)
        for one in judgements(item.query)
    ]  # type: ignore[arg-type]
    return [
        figure("passages pooled and graded by rag-eval truth pool", told["judge"]["graded"]),
        figure("share of them that is relevant", 100 * np.mean([real for _, real in pairs]), "%"),
        figure("errors of the judge", 100 * np.mean([said != real for said, real in pairs]), "%"),
    ]


def draws(workspace: Any, outcome: Any, corpus: Corpus, truth: Any, pooled: Any) -> list[dict[str, Any]]:
    """Coverage and width over draws of the judge's errors and of the sample, of the mean over the configurations."""
    by_id = {item.query.id: item for item in truth}
    things = [(item.query.id, one.passage) for item in pooled for one in judgements(item.query)]
    real = np.array([is_relevant(passage, by_id[query_id]) for query_id, passage in things], float)
    document = np.unique([passage.doc_id for _, passage in things], return_inverse=True)[1]
    questions, numbers = np.unique([query_id for query_id, _ in things], return_inverse=True)
    units = Units("queries", numbers, len(questions))
    rows = [(query_id, n, 0, p.doc_id, p.start, p.end) for n, (query_id, p) in enumerate(things)]
    passages = table_of(TRUTH, rows, ("query_id", "group", "member", "doc_id", "start", "end"))
    queries = truth_to_tables(truth).queries
    without = pc.invert(pc.is_in(queries.column("query_id"), value_set=passages.column("query_id").unique()))
    place = queries.schema.get_field_index("unanswerable")
    tables = TruthTables(queries.set_column(place, queries.schema.field(place), without), passages)
    weights = [
        len(things)
        / len(truth)
        * held_shares("token-level", as_passages(workspace.read_table(one.returned)), tables, Cut("hits", K), corpus)
        for one in outcome.configurations
    ] + [np.ones(len(things))]
    figures = []
    for n in SAMPLES:
        rng, covered, widths = np.random.default_rng(n), np.zeros((3, len(weights))), np.zeros((2, len(weights)))
        for _ in range(DRAWS):
            errs = rng.random(len(things)) < rng.uniform(0.1, 0.3, 5)[document]
            said = np.where(errs, 1 - real, real)
            judged = np.where(rng.permutation(len(things)) < n, real, np.nan)
            for i, weight in enumerate(weights):
                found, target = prediction_powered(said, judged, units, weight), float(np.mean(weight * real))
                for j, one in enumerate((found.powered, found.human, found.model)):
                    assert one.low is not None
                    assert one.high is not None
                    covered[j, i] += one.low <= target <= one.high
                    widths[j if j < 2 else 0, i] += (one.high - one.low) if j < 2 else 0.0
        share, ratio = 100 * covered / DRAWS, widths[0] / widths[1]
        figures += [
            figure(
                f"{n} people's judgements: least coverage of the precision of 8 configurations",
                share[0, :-1].min(),
                "%",
                93,
            ),
            figure(f"{n}: coverage, mean of the configurations", share[0, :-1].mean(), "%", 93),
            figure(f"{n}: coverage of the relevance of the pool", share[0, -1], "%", 93),
            figure(f"{n}: coverage by people alone, mean", share[1].mean(), "%"),
            figure(f"{n}: coverage by the model alone, mean", share[2].mean(), "%"),
            figure(f"{n}: widest interval in ratio to people alone", ratio.max(), "", 1, least=False),
            figure(f"{n}: mean interval in ratio to people alone", ratio.mean(), "", 1, least=False),
        ]
    return figures


def report(workspace: Any, config: BenchmarkConfig, judged: Path, truth: Any) -> list[dict[str, Any]]:
    """The report of a run with the sample judged by people: how many of its intervals cover."""
    by_id = {item.query.id: item for item in truth}
    items = read_token_level(judged)
    every: dict[Any, Any] = {(item.query.id, one.passage): one for item in items for one in judgements(item.query)}
    right = {key: 3 * is_relevant(key[1], by_id[key[0]]) for key in every}

    def run_with(grades: dict[Any, int]) -> Any:
        path = judged.with_name(f"{len(grades)}.jsonl")
        write_truth(
            path,
            with_grades(items, PERSON, {key: PassageGrade(reason="", grade=grade) for key, grade in grades.items()}),
        )
        return run_benchmark(workspace, config.model_copy(update={"ground_truth": [FileTruth(path)]}))

    found = unjudged_of(workspace, run_with({key: right[key] for key, one in every.items() if one.sampled}))
    values = {one.name: one.metrics[config.objective] for one in run_with(right).configurations}
    assert found is not None
    intervals = [(one.precision.powered, values[one.name]) for one in found.configurations if one.precision]
    covered = sum(one.low is not None and one.high is not None and one.low <= v <= one.high for one, v in intervals)
    return [figure(f"intervals of one report that cover, of {len(intervals)} configurations", covered)]
