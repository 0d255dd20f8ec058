"""The event that says that documents have changed, for Prefect's triggers."""

from pathlib import Path
from typing import Any

from rag_eval.corpus_watch import CorpusChange
from rag_eval.types.ids import text_sha256

CORPUS_CHANGED = "corpus.changed"
MOST_NAMES = 100
"""How many names of documents an event holds of each kind; the counts are whole."""


def corpus_resource(corpus: Path) -> dict[str, str]:
    """A corpus as Prefect's events know it: one id for one folder."""
    path = corpus.resolve().as_posix()
    return {"prefect.resource.id": f"corpus.{text_sha256(path)[:16]}", "prefect.resource.name": corpus.resolve().name}


def change_payload(corpus: Path, change: CorpusChange) -> dict[str, Any]:
    """What the event tells: the corpus, a summary, and which documents were added, changed and removed."""
    kinds = {"added": change.added, "changed": change.changed, "removed": change.removed}
    return {
        "corpus": str(corpus.resolve()),
        "summary": f"{corpus.resolve().name}: {change}",
        **{kind: list(names[:MOST_NAMES]) for kind, names in kinds.items()},
        "counts": {kind: len(names) for kind, names in kinds.items()},
    }


def emit_corpus_change(corpus: Path, change: CorpusChange) -> None:
    """Tell Prefect; returns when the server has it.

    Raises ``ServiceError`` when it does not take it.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.events import Event
    from prefect.events.schemas.events import Resource
    from prefect.exceptions import PrefectHTTPStatusError

    from rag_eval.errors import ServiceError, as_sentence

    resource = Resource(corpus_resource(corpus))
    event = Event(event=CORPUS_CHANGED, resource=resource, payload=change_payload(corpus, change))
    try:
        with get_client(sync_client=True) as client:
            client.request("POST", "/events", json=[event.model_dump(mode="json")])
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        raise ServiceError(f"Prefect did not take the event {CORPUS_CHANGED} ({as_sentence(error)})") from None
