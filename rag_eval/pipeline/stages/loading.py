"""Reading the corpus and the ground truth."""

from rag_eval.errors import ArtifactError, GroundTruthError
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.native import read_chunk_level, read_token_level
from rag_eval.pipeline.references import CorpusSource, Effort, TableRef, TruthRef, TruthSource
from rag_eval.pipeline.stage import stage
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import chunk_truth_to_tables, documents_from_table, documents_to_table, token_truth_to_tables
from rag_eval.types.document import Corpus
from rag_eval.types.ids import EvaluationType


@stage(version=1)
def load_corpus(workspace: Workspace, source: CorpusSource) -> TableRef:
    """Read the documents of a folder."""
    corpus = Corpus.from_folder(source.folder, source.glob)
    if CorpusSource.of(source.folder, source.glob).digest != source.digest:
        raise ArtifactError(f"the corpus folder {str(source.folder)!r} changed while it was read: run again")
    effort = Effort(fresh=len(corpus), total=len(corpus), unit="documents")
    return workspace.write_table("documents", documents_to_table(corpus), effort)


@stage(version=1)
def load_ground_truth(
    workspace: Workspace, source: TruthSource, documents: TableRef, evaluation_type: EvaluationType
) -> TruthRef:
    """Read the ground truth; spans are held against the documents."""
    if evaluation_type == "token-level":
        spans = read_token_level(source.path)
        check_against_corpus(spans, Corpus(documents_from_table(workspace.read_table(documents))))
        span_tables = token_truth_to_tables(spans)
        queries, kind, answers = span_tables.queries, "truth-spans", span_tables.spans
    else:
        chunk_tables = chunk_truth_to_tables(read_chunk_level(source.path))
        queries, kind, answers = chunk_tables.queries, "truth-chunks", chunk_tables.chunks
    if all(queries.column("unanswerable").to_pylist()):
        raise GroundTruthError(
            f"every query of {str(source.path)!r} is declared unanswerable: there is nothing to score"
        )
    if TruthSource.of(source.path).digest != source.digest:
        raise ArtifactError(f"the ground-truth file {str(source.path)!r} changed while it was read: run again")
    effort = Effort(fresh=queries.num_rows, total=queries.num_rows, unit="queries")
    return TruthRef(
        evaluation_type=evaluation_type,
        queries=workspace.write_table("queries", queries, effort),
        answers=workspace.write_table(kind, answers),
    )
