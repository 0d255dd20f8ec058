"""A double of orq.ai that receives experiments."""

from typing import Any

from tests.doubles.loopback import LoopbackServer, Refusal, Request

KEY = "orq-key-for-tests"
RECEIVE = "/v2/spreadsheets/evaluations/receive"


class OrqServer(LoopbackServer):
    """Keeps experiments by their idempotency key."""

    def __init__(self) -> None:
        super().__init__()
        self.experiments: dict[str, dict[str, Any]] = {}

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise Refusal(401, f"{request.headers.get('authorization')} is not known here")
        if str(request) == f"POST {RECEIVE}":
            return 200, self._receive(request)
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
