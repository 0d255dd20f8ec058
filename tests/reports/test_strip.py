"""The strip against recall within tokens as a plain loop over characters has it."""

import pytest

from rag_eval.reports.strip import strip_of
from rag_eval.results.run_scores import read_scores
from rag_eval.tokens import count_tokens
from tests.reports.conftest import Kept

BUDGETS = (250, 2_000)


def test_the_strip_is_what_a_plain_loop_finds(sample_run: Kept) -> None:
    workspace, outcome = sample_run.workspace, sample_run.outcome
    strip = strip_of(read_scores(workspace, outcome), outcome)
    assert strip is not None
    texts = {
        row["doc_id"]: row["content"]
        for ref in outcome.inputs.documents
        for row in workspace.read_table(ref).to_pylist()
    }
    truth: dict[str, set[tuple[str, int]]] = {}
    for row in workspace.read_table(outcome.inputs.truth.answers).to_pylist():
        places = truth.setdefault(row["query_id"], set())
        places |= {(row["doc_id"], place) for place in range(row["start"], row["end"])}
    means: dict[str, list[float]] = {}
    for one in outcome.configurations[:3]:
        hits: dict[str, list[tuple[str, int, int]]] = {}
        for row in workspace.read_table(one.returned).sort_by("rank").to_pylist():
            hits.setdefault(row["query_id"], []).append((row["doc_id"], row["start"], row["end"]))
        sums = [0.0] * len(BUDGETS)
        for query, wanted in truth.items():
            for number, budget in enumerate(BUDGETS):
                spent, found = 0, set()
                for doc_id, start, end in hits.get(query, []):
                    spent += count_tokens(texts[doc_id][start:end], "cl100k_base")
                    if spent > budget:
                        break
                    found |= wanted & {(doc_id, place) for place in range(start, end)}
                sums[number] += len(found) / len(wanted)
        means[one.name] = [total / len(truth) for total in sums]
    for number, budget in enumerate(BUDGETS):
        at = strip.budgets.index(budget)
        for name, own in means.items():
            assert strip.means[name][at] == pytest.approx(own[number], abs=1e-6), (name, budget)
        every = {name: row[at] or 0.0 for name, row in strip.means.items()}
        assert every[strip.first[at] or ""] == max(every.values())
