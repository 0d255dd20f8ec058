"""Re-anchoring ground truth with the earlier versions of documents that runs left in a workspace."""

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.benchmark.workspace import Workspace
from rag_eval.disk.rows import read_table
from rag_eval.errors import ArtifactError, TableError
from rag_eval.ground_truth.drift import ReanchorReport, check_not_empty, documents_that_no_longer_match, reanchor
from rag_eval.tables import documents_from_table
from rag_eval.types.documents import Corpus
from rag_eval.types.ground_truth import TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId


def document_versions(workspace: Workspace, doc_ids: Collection[DocumentId]) -> dict[DocumentId, list[str]]:
    """Return the texts that documents had in the runs of a workspace, the last used first, each once.

    A workspace that does not exist has none. Tables that are gone, altered or of another shape are skipped.
    """
    workspace.storage.bring_missing("tables/documents")
    paths = [path for path in (workspace.root / "tables" / "documents").glob("*.arrow") if path.is_file()]
    wanted = pa.array(sorted(doc_ids), pa.string())
    found: dict[DocumentId, list[str]] = {}
    for path in sorted(paths, key=lambda path: (-path.stat().st_mtime_ns, path.name)):
        try:
            table = read_table(path)
            documents = documents_from_table(table.filter(pc.is_in(table.column("doc_id"), wanted)))
        except (OSError, KeyError, pa.ArrowException, ArtifactError, TableError):
            continue
        for document in documents:
            versions = found.setdefault(document.id, [])
            if document.content not in versions:
                versions.append(document.content)
    return found


def reanchor_for_run(
    workspace: Workspace | None, truth: Sequence[TokenLevelGroundTruth], corpus: Corpus
) -> ReanchorReport:
    """Carry ground truth over to the corpus, with the versions of documents that a workspace has.

    Raises ``GroundTruthError`` when no query is left.
    """
    drifted = documents_that_no_longer_match(truth, corpus)
    report = reanchor(truth, corpus, document_versions(workspace, drifted) if workspace and drifted else None)
    check_not_empty(report)
    return report
