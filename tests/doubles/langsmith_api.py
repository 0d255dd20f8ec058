"""What LangSmith keeps and answers, as far as evaluations, datasets and experiments need it.

It is as strict as the service where a client may go wrong, and answers 501 to what it does not imitate.
"""

import re
import uuid
from collections.abc import Callable
from statistics import fmean
from typing import Any

from tests.doubles.langsmith_datasets import DatasetsApi
from tests.doubles.langsmith_records import PAGE, TENANT, Record, found, named, now, page
from tests.doubles.loopback import Refusal, Request


class LangSmithApi(DatasetsApi):
    """Sessions (projects, experiments), runs and feedback, each by id, beside the datasets."""

    def __init__(self) -> None:
        super().__init__()
        self.info: Record = {
            "version": "0.18.2",
            "batch_ingest_config": {
                "use_multipart_endpoint": True,
                "scale_up_qsize_trigger": 1000,
                "scale_up_nthreads_limit": 16,
                "scale_down_nempty_trigger": 4,
                "size_limit": 100,
                "size_limit_bytes": 20_971_520,
            },
            "instance_flags": {"dataset_examples_multipart_enabled": True, "zstd_compression_enabled": True},
        }
        self.sessions: dict[str, Record] = {}
        self.runs: dict[str, Record] = {}
        self.feedback: dict[str, Record] = {}
        self._new_session({"name": "default"})  # every workspace has one

    def answer(self, request: Request) -> tuple[int, Any]:
        """Status and JSON of the answer; raises ``Refusal``."""
        for method, path, route in ROUTES:
            match = re.fullmatch(path, request.path)
            if match and method == request.method:
                return 200, route(self, request, *match.groups())
        raise Refusal(404, f"no such place: {request}")

    # sessions

    def list_sessions(self, request: Request) -> list[Record]:
        chosen = named(self.sessions.values(), request, ("reference_free", "include_stats", "reference_dataset"))
        if dataset := request.one("reference_dataset"):
            chosen = [one for one in chosen if one["reference_dataset_id"] == dataset]
        if request.one("reference_free") in ("True", "true"):
            chosen = [one for one in chosen if one["reference_dataset_id"] is None]
        return [self._with_stats(one) for one in page(chosen, request)]

    def create_session(self, request: Request) -> Record:
        given = request.json()
        same = next((one for one in self.sessions.values() if one["name"] == given["name"]), None)
        if same is None:
            return self._new_session(given)
        if request.one("upsert") not in ("True", "true"):
            raise Refusal(409, "Session already exists.")
        return same

    def read_session(self, _request: Request, session_id: str) -> Record:
        return self._with_stats(found(self.sessions, session_id))

    def update_session(self, request: Request, session_id: str) -> Record:
        session = found(self.sessions, session_id)
        session |= {key: value for key, value in request.json().items() if value is not None}
        return session

    def delete_session(self, _request: Request, session_id: str) -> Record:
        found(self.sessions, session_id)
        del self.sessions[session_id]
        return {}

    def _new_session(self, given: Record) -> Record:
        session: Record = {
            "id": str(uuid.uuid4()),
            "start_time": now(),
            "end_time": None,
            "description": None,
            "extra": None,
        }
        session |= {"reference_dataset_id": None} | given | {"tenant_id": TENANT}
        self.sessions[session["id"]] = session
        return session

    def _with_stats(self, session: Record) -> Record:
        runs = {run_id for run_id, run in self.runs.items() if run.get("session_id") == session["id"]}
        of_runs = [one for one in self.feedback.values() if one.get("run_id") in runs]
        of_session = [
            one
            for one in self.feedback.values()
            if one.get("run_id") is None and one.get("session_id") == session["id"]
        ]
        stats = {"run_count": len(runs), "feedback_stats": _stats(of_runs)}
        return session | stats | {"session_feedback_stats": _stats(of_session)}

    # runs

    def ingest(self, request: Request) -> Record:
        parts = request.parts()
        # A record is posted once; a request with one that is known is refused as a whole.
        known = [
            part.name
            for part in parts
            if part.name.removeprefix("post.") in self.runs or part.name.removeprefix("feedback.") in self.feedback
        ]
        if known:
            raise Refusal(409, f"{known[0]} was received already")
        for part in parts:
            operation, record_id, *field = part.name.split(".", 2)
            if operation == "feedback":
                self._store_feedback(part.json())
            elif operation == "attachment":
                self.runs.setdefault(record_id, {}).setdefault("attachments", {})[field[0]] = part.body
            elif operation in ("post", "patch"):
                self._store_run(record_id, {field[0]: part.json()} if field else part.json())
            else:
                raise Refusal(422, f"unknown part {part.name}")
        return {}

    def ingest_batch(self, request: Request) -> Record:
        for run in request.json().get("post", []) + request.json().get("patch", []):
            self._store_run(run["id"], run)
        return {}

    def create_run(self, request: Request) -> Record:
        run = request.json()
        self._store_run(run["id"], run)
        return {}

    def update_run(self, request: Request, run_id: str) -> Record:
        self._store_run(run_id, request.json())
        return {}

    def read_run(self, _request: Request, run_id: str) -> Record:
        return found(self.runs, run_id)

    def query_runs(self, request: Request) -> Record:
        given = {key: value for key, value in request.json().items() if value is not None}
        if unknown := given.keys() - {"session", "is_root", "id", "reference_example", "limit", "select", "cursor"}:
            raise Refusal(501, f"the double does not know {sorted(unknown)}")
        chosen = list(self.runs.values())
        for key, field in (("session", "session_id"), ("id", "id"), ("reference_example", "reference_example_id")):
            if key in given:
                chosen = [run for run in chosen if run.get(field) in given[key]]
        if given.get("is_root"):
            chosen = [run for run in chosen if run.get("parent_run_id") is None]
        start = int(given.get("cursor", 0))
        end = start + min(given.get("limit", PAGE), PAGE)
        return {"runs": chosen[start:end], "cursors": {"next": str(end) if end < len(chosen) else None}}

    def _store_run(self, run_id: str, given: Record) -> None:
        run = self.runs.setdefault(run_id, {"id": run_id})
        run |= {key: value for key, value in given.items() if value is not None}
        if name := given.get("session_name"):
            same = (one for one in self.sessions.values() if one["name"] == name)
            run["session_id"] = (next(same, None) or self._new_session({"name": name}))["id"]

    # feedback

    def create_feedback(self, request: Request) -> Record:
        return self._store_feedback(request.json())

    def list_feedback(self, request: Request) -> list[Record]:
        chosen = list(self.feedback.values())
        for name, field in (("run", "run_id"), ("key", "key"), ("session", "session_id")):
            if wanted := request.query.get(name):
                chosen = [one for one in chosen if one.get(field) in wanted]
        return page(chosen, request)

    def read_feedback(self, _request: Request, feedback_id: str) -> Record:
        return found(self.feedback, feedback_id)

    def update_feedback(self, request: Request, feedback_id: str) -> Record:
        feedback = found(self.feedback, feedback_id)
        feedback |= request.json()
        return feedback

    def _store_feedback(self, given: Record) -> Record:
        self.feedback[given["id"]] = given
        return given


Route = Callable[..., Any]
ID = r"/([0-9a-f-]{36})"
EXAMPLES = rf"/v1/platform/datasets{ID}/examples"
ROUTES: tuple[tuple[str, str, Route], ...] = (
    ("GET", "/info", lambda api, _request: api.info),
    ("GET", "/datasets", LangSmithApi.list_datasets),
    ("POST", "/datasets", LangSmithApi.create_dataset),
    ("GET", f"/datasets{ID}", LangSmithApi.read_dataset),
    ("PATCH", f"/datasets{ID}", LangSmithApi.update_dataset),
    ("DELETE", f"/datasets{ID}", LangSmithApi.delete_dataset),
    ("POST", EXAMPLES, LangSmithApi.create_examples),
    ("PATCH", EXAMPLES, LangSmithApi.update_examples),
    ("POST", "/examples/bulk", LangSmithApi.create_examples_in_bulk),
    ("GET", "/examples", LangSmithApi.list_examples),
    ("DELETE", "/examples", LangSmithApi.delete_examples),
    ("GET", f"/examples{ID}", LangSmithApi.read_example),
    ("DELETE", f"/examples{ID}", LangSmithApi.delete_example),
    ("GET", "/sessions", LangSmithApi.list_sessions),
    ("POST", "/sessions", LangSmithApi.create_session),
    ("GET", f"/sessions{ID}", LangSmithApi.read_session),
    ("PATCH", f"/sessions{ID}", LangSmithApi.update_session),
    ("DELETE", f"/sessions{ID}", LangSmithApi.delete_session),
    ("POST", "/runs/multipart", LangSmithApi.ingest),
    ("POST", "/runs/batch", LangSmithApi.ingest_batch),
    ("POST", "/runs/query", LangSmithApi.query_runs),
    ("POST", "/runs", LangSmithApi.create_run),
    ("PATCH", f"/runs{ID}", LangSmithApi.update_run),
    ("GET", f"/runs{ID}", LangSmithApi.read_run),
    ("GET", "/feedback", LangSmithApi.list_feedback),
    ("POST", "/feedback", LangSmithApi.create_feedback),
    ("GET", f"/feedback{ID}", LangSmithApi.read_feedback),
    ("PATCH", f"/feedback{ID}", LangSmithApi.update_feedback),
)


def _stats(feedback: list[Record]) -> Record:
    """Count and mean by key; feedback without a score is counted and not averaged."""
    stats: Record = {}
    for key in sorted({one["key"] for one in feedback}):
        scores = [one.get("score") for one in feedback if one["key"] == key]
        given = [score for score in scores if score is not None]
        stats[key] = {"n": len(scores), "avg": fmean(given) if given else None}
    return stats
