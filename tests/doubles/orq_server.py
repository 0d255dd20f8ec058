"""A double of orq.ai: it receives experiments, once each, and serves datasets page by page."""

from typing import Any

from tests.doubles.loopback import LoopbackServer, Refusal, Request

KEY = "orq-key-for-tests"
RECEIVE = "/v2/spreadsheets/evaluations/receive"


class OrqServer(LoopbackServer):
    """Keeps what it received in ``experiments`` by the key that makes a second attempt known."""

    def __init__(self, datasets: dict[str, list[dict[str, Any]]] | None = None) -> None:
        super().__init__()
        self.experiments: dict[str, dict[str, Any]] = {}
        self._datasets = datasets or {}

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise Refusal(401, f"{request.headers.get('authorization')} is not known here")
        if str(request) == f"POST {RECEIVE}":
            return 200, self._receive(request)
        parts = request.path.strip("/").split("/")
        if request.method == "GET" and parts[:2] == ["v2", "datasets"] and parts[3:] == ["datapoints"]:
            return 200, self._page(parts[2], request)
        raise Refusal(404, f"{request} is not known here")

    def _receive(self, request: Request) -> dict[str, Any]:
        body = request.json()
        for key in ("_name", "_createdAt", "_endedAt", "_evaluationDuration", "results"):
            if key not in body:
                raise Refusal(422, f"{key} is missing")
        for row in body["results"]:
            for job in row["jobResults"]:
                if job["error"] is None or any(score["error"] is None for score in job["evaluatorScores"]):
                    raise Refusal(422, "an error is null")
        self.experiments[request.headers["idempotency-key"]] = body
        return {
            "sheet_id": "s1",
            "manifest_id": "m1",
            "experiment_name": body["_name"],
            "rows_created": len(body["results"]),
            "experiment_url": f"{self.url}/experiments/s1",
        }

    def _page(self, dataset: str, request: Request) -> dict[str, Any]:
        if dataset not in self._datasets:
            raise Refusal(404, "no such dataset")
        points = self._datasets[dataset]
        after = request.one("starting_after")
        begin = next((place + 1 for place, point in enumerate(points) if point["_id"] == after), 0)
        size = int(request.one("limit") or 10)
        page = points[begin : begin + size]
        return {"object": "list", "data": page, "has_more": begin + size < len(points)}


def data_point(number: int) -> dict[str, Any]:
    """A data point as orq.ai gives it."""
    return {
        "_id": f"point-{number}",
        "workspace_id": "w",
        "dataset_id": "d",
        "inputs": {"question": f"question {number}"},
        "expected_output": f"answer {number}",
        "messages": [],
        "created_by_id": "u",
        "updated_by_id": "u",
        "created": "2026-01-01T00:00:00Z",
        "updated": "2026-01-01T00:00:00Z",
    }
