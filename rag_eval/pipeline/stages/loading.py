"""Reading the corpus and the ground truth."""

from rag_eval.digests import texts_sha256
from rag_eval.errors import ArtifactError, GroundTruthError
from rag_eval.ground_truth.drift import check_still_matches
from rag_eval.ground_truth.native import read_chunk_level, read_token_level
from rag_eval.pipeline.old_documents import reanchor_for_run
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
    if texts_sha256((document.id, document.content) for document in corpus) != source.digest:
        raise ArtifactError(f"the corpus folder {str(source.folder)!r} changed while it was read: run again")
    effort = Effort(fresh=len(corpus), total=len(corpus), unit="documents")
    return workspace.write_table("documents", documents_to_table(corpus), effort)


@stage(version=1)
def load_ground_truth(
    workspace: Workspace,
    source: TruthSource,
    documents: TableRef,
    evaluation_type: EvaluationType,
    reanchor: bool = False,
) -> TruthRef:
    """Read the ground truth; spans are held against the documents, or with ``reanchor`` carried over to them."""
    if evaluation_type == "token-level":
        spans = read_token_level(source.path)
        corpus = Corpus(documents_from_table(workspace.read_table(documents)))
        spans = list(reanchor_for_run(workspace, spans, corpus).truth) if reanchor else spans
        check_still_matches(spans, corpus, source.path)
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
        queries=workspace.write_table("queries", queries),
        answers=workspace.write_table(kind, answers),
        effort=effort,
    )
