"""Published figures: where Chroma's evaluation puts chunks, and BM25 on BEIR-shaped data as trec_eval scores it."""

import json
from pathlib import Path
from statistics import fmean

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval.config.loading import load_config
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.reproduction import FirstOccurrence, other_files, publication, write_benchmark
from rag_eval.sample import CORPUS
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId, generate_chunk_id
from tests.chain import evaluate, load_inputs

MEASURES = {ir_measures.nDCG @ 10: ("chunk_ndcg", 10), ir_measures.R @ 100: ("chunk_recall", 100)}


class Fours:
    """Cuts after every fourth character."""

    name = "fours"

    def chunk(self, text: str) -> list[str]:
        return [text[at : at + 4] for at in range(0, len(text), 4)]


@given(st.text("ab.", max_size=60))
def test_a_chunk_is_where_its_text_without_a_final_point_occurs_first(text: str) -> None:
    bare = [piece[:-1] if piece.endswith(".") else piece for piece in Fours().chunk(text)]
    expected = {(text.index(one), text.index(one) + len(one)) for one in bare if one}
    chunks = FirstOccurrence(Fours()).chunk_with_positions(Document(DocumentId("d"), text))
    assert [(one.start, one.end) for one in chunks] == sorted(expected)


def beir_folder(folder: Path) -> dict[str, dict[str, int]]:
    """The sections of the sample as documents, some asked for by their heading; what is judged, by query."""
    (folder / "qrels").mkdir(parents=True)
    sections = [
        (f"{path.stem}-{number}", *text.split("\n", 1))
        for path in sorted(CORPUS.rglob("*.md"))
        for number, text in enumerate(path.read_text(encoding="utf-8").split("\n## ")[1:])
    ]
    judged: dict[str, dict[str, int]] = {}
    for number, (_, title, _) in enumerate(sections):
        # Whatever shares a word with the heading is relevant, and the judges looked at two that are not.
        alike = [one for one, other, _ in sections if set(other.lower().split()) & set(title.lower().split())]
        rest = [one for one, *_ in sections if one not in alike][:2]
        judged[f"q{number}"] = dict.fromkeys(alike, 1) | dict.fromkeys(rest, 0)
    lines = {
        "corpus.jsonl": [{"_id": one, "title": title, "text": text} for one, title, text in sections],
        "queries.jsonl": [{"_id": f"q{number}", "text": one[1]} for number, one in enumerate(sections)],
    }
    for name, records in lines.items():
        (folder / name).write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    rows = [f"{query}\t{doc}\t{grade}" for query, grades in judged.items() for doc, grade in grades.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]), encoding="utf-8")
    return judged


def test_bm25_on_beir_shaped_data_has_the_scores_of_trec_eval(tmp_path: Path) -> None:
    judged = beir_folder(tmp_path / "data")
    config = load_config(write_benchmark("beir", tmp_path / "data", tmp_path / "made"))
    workspace = Workspace(root=tmp_path / ".rag-eval")
    inputs = load_inputs(workspace, config)
    names = {
        generate_chunk_id(row["content"]): row["doc_id"].removesuffix(".txt").removesuffix(".md")
        for shard in inputs.documents
        for row in workspace.read_table(shard).to_pylist()
    }
    assert len(judged) > 50
    for configuration in config.configurations():
        found = evaluate(workspace, configuration, inputs)
        hits = [
            ir_measures.ScoredDoc(row["query_id"], names[row["chunk_id"]], 1 / row["rank"])
            for row in workspace.read_table(found.hits.last).to_pylist()
        ]
        qrels = [ir_measures.Qrel(query, doc, grade) for query, all_ in judged.items() for doc, grade in all_.items()]
        peer = ir_measures.calc_aggregate([*MEASURES], qrels, hits)
        rows = workspace.read_table(found.scores.table).to_pylist()
        for measure, metric, size in (
            (ir_measures.nDCG @ 10, "chunk_ndcg", 10),
            (ir_measures.R @ 100, "chunk_recall", 100),
        ):
            ours = fmean(row["value"] for row in rows if (row["metric"], row["size"]) == (metric, size))
            assert ours == pytest.approx(peer[measure], abs=1e-12)
        assert 0.1 < peer[ir_measures.nDCG @ 10] < 0.99  # neither hopeless nor perfect: the comparison says something


def test_other_data_and_unknown_names_are_told(tmp_path: Path) -> None:
    (tmp_path / "questions_df.csv").write_text("question,references,corpus_id")
    assert other_files("chroma", tmp_path) == list(publication("chroma").digests)
    with pytest.raises(ConfigurationError, match=r"there is no publication 'chrome' \(did you mean chroma\?\)"):
        publication("chrome")
