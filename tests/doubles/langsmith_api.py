"""What LangSmith keeps and answers, as far as evaluations, datasets and experiments need it.

It is as strict as the service where a client may go wrong, and answers 501 to what it does not imitate.
"""

import re
import uuid
from collections.abc import Callable
from typing import Any

from tests.doubles.langsmith_datasets import DatasetsApi
from tests.doubles.langsmith_records import TENANT, Record, found, named, now, page
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
        return page(chosen, request)

    def create_session(self, request: Request) -> Record:
        given = request.json()
        same = next((one for one in self.sessions.values() if one["name"] == given["name"]), None)
        if same is None:
            return self._new_session(given)
        if request.one("upsert") not in ("True", "true"):
            raise Refusal(409, "Session already exists.")
        return same

    def read_session(self, _request: Request, session_id: str) -> Record:
        return found(self.sessions, session_id)

    def update_session(self, request: Request, session_id: str) -> Record:
        session = found(self.sessions, session_id)
        session |= {key: value for key, value in request.json().items() if value is not None}
        return session

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
                self.feedback[record_id] = part.json()
            elif operation in ("post", "patch"):
                self._store_run(record_id, {field[0]: part.json()} if field else part.json())
            else:
                raise Refusal(422, f"unknown part {part.name}")
        return {}

    def _store_run(self, run_id: str, given: Record) -> None:
        run = self.runs.setdefault(run_id, {"id": run_id})
        run |= {key: value for key, value in given.items() if value is not None}
        if name := given.get("session_name"):
            same = (one for one in self.sessions.values() if one["name"] == name)
            run["session_id"] = (next(same, None) or self._new_session({"name": name}))["id"]


Route = Callable[..., Any]
ID = r"/([0-9a-f-]{36})"
EXAMPLES = rf"/v1/platform/datasets{ID}/examples"
ROUTES: tuple[tuple[str, str, Route], ...] = (
    ("GET", "/info", lambda api, _request: api.info),
    ("GET", "/datasets", LangSmithApi.list_datasets),
    ("POST", "/datasets", LangSmithApi.create_dataset),
    ("POST", EXAMPLES, LangSmithApi.create_examples),
    ("PATCH", EXAMPLES, LangSmithApi.update_examples),
    ("GET", "/examples", LangSmithApi.list_examples),
    ("DELETE", "/examples", LangSmithApi.delete_examples),
    ("GET", f"/examples{ID}", LangSmithApi.read_example),
    ("GET", "/sessions", LangSmithApi.list_sessions),
    ("POST", "/sessions", LangSmithApi.create_session),
    ("GET", f"/sessions{ID}", LangSmithApi.read_session),
    ("PATCH", f"/sessions{ID}", LangSmithApi.update_session),
    ("POST", "/runs/multipart", LangSmithApi.ingest),
)
