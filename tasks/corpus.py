"""Load the corpus: find its files, and read them shard by shard."""

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import task_run

from rag_eval.pipeline import document_steps as steps
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace
from tasks.caching import cached


def _find_documents_name() -> str:
    return f"find documents {Path(task_run.parameters['folder']).name}"


@task(cache_policy=NO_CACHE, tags=["corpus"], task_run_name=_find_documents_name)
def find_documents(
    folder: Path | str,
    glob: str | list[str] = "**/*.md",
    loaders: dict[str, Any] | None = None,
    shards: int | None = None,
) -> list[CorpusSource]:
    """List the document files of a folder with their digests, divided into shards.

    Args:
        folder: The folder of the documents.
        glob: Patterns of the files that are documents.
        loaders: Loaders by suffix or pattern.
        shards: The number of shards; by default it follows the size of the corpus.

    Returns:
        A source for each shard, to be mapped over by ``load_corpus``.

    Raises:
        CorpusError: The folder is missing or unreadable, or no file matches.
    """
    return CorpusSource.of(Path(folder), glob, loaders).shards(shards)


@task(**cached(steps.load_corpus), tags=["corpus"], task_run_name="load corpus {source.folder.name}")
def load_corpus(source: CorpusSource, *, workspace: Workspace) -> TableRef:
    """Read the documents of one shard.

    Args:
        source: The files, from ``find_documents``.
        workspace: Where the table is written.

    Returns:
        The documents: doc_id, content, sha256, metadata.
    """
    return steps.load_corpus.run(workspace, source)
