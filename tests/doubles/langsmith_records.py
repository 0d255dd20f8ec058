"""What the parts of a double of LangSmith share: records by id, names, pages."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from tests.doubles.loopback import Refusal, Request

Record = dict[str, Any]

PAGE = 100
TENANT = "00000000-0000-4000-8000-000000000001"


def now() -> str:
    return datetime.now(UTC).isoformat()


def found(kept: dict[str, Record], record_id: str) -> Record:
    if record_id not in kept:
        raise Refusal(404, f"{record_id} not found")
    return kept[record_id]


def named(kept: Iterable[Record], request: Request, known: Iterable[str]) -> list[Record]:
    if unknown := request.query.keys() - {"name", "name_contains", "id", "limit", "offset", *known}:
        raise Refusal(501, f"the double does not know {sorted(unknown)}")
    found = list(kept)
    if name := request.one("name"):
        found = [one for one in found if one["name"] == name]
    if part := request.one("name_contains"):
        found = [one for one in found if part in one["name"]]
    if ids := request.query.get("id"):
        found = [one for one in found if one["id"] in ids]
    return found


def page(found: list[Record], request: Request) -> list[Record]:
    limit, offset = int(request.one("limit") or PAGE), int(request.one("offset") or 0)
    if not 1 <= limit <= PAGE:
        raise Refusal(422, f"limit must be from 1 to {PAGE}")
    return found[offset : offset + limit]
