"""LangSmith's datasets and examples.

Names are unique, a page holds at most 100, and examples come newest first, in no promised order within one upload.
"""

import json
import uuid
from datetime import datetime

from tests.doubles.langsmith_records import TENANT, Record, found, named, now, page
from tests.doubles.loopback import Part, Refusal, Request

LIST_EXAMPLES = {"offset", "limit", "dataset", "id", "splits", "metadata", "as_of", "inline_s3_urls"}


class DatasetsApi:
    """Datasets and examples, each by id."""

    def __init__(self) -> None:
        self.datasets: dict[str, Record] = {}
        self.examples: dict[str, Record] = {}
        self.deleted: set[str] = set()

    def list_datasets(self, request: Request) -> list[Record]:
        return page(named(self.datasets.values(), request, ()), request)

    def create_dataset(self, request: Request) -> Record:
        given = request.json()
        if any(dataset["name"] == given["name"] for dataset in self.datasets.values()):
            raise Refusal(409, "Dataset with this name already exists.")
        extra = given.get("extra") or {}
        dataset = {"id": str(uuid.uuid4()), "description": None, "data_type": "kv", "tenant_id": TENANT, **given}
        dataset |= {"created_at": now(), "modified_at": now(), "metadata": extra.get("metadata")}
        dataset |= {"example_count": 0, "session_count": 0}
        self.datasets[dataset["id"]] = dataset
        return dataset

    def list_examples(self, request: Request) -> list[Record]:
        if unknown := request.query.keys() - LIST_EXAMPLES:
            raise Refusal(501, f"the double does not know {sorted(unknown)}")
        chosen = list(self.examples.values())
        if dataset := request.one("dataset"):
            chosen = [one for one in chosen if one["dataset_id"] == dataset]
        if ids := request.query.get("id"):
            chosen = [one for one in chosen if one["id"] in ids]
        if splits := request.query.get("splits"):
            chosen = [one for one in chosen if set(splits) & set(one["metadata"].get("dataset_split", ()))]
        if metadata := request.one("metadata"):
            wanted = json.loads(metadata)
            chosen = [one for one in chosen if one["metadata"] == one["metadata"] | wanted]
        if (as_of := request.one("as_of")) not in (None, "latest"):
            newest = max((one["modified_at"] for one in chosen), default="")
            if datetime.fromisoformat(str(as_of)) < datetime.fromisoformat(newest or now()):
                raise Refusal(501, "the double keeps only the latest version")
        # Two stable sorts: by id within one upload, newest upload first.
        chosen.sort(key=lambda one: one["id"])
        chosen.sort(key=lambda one: one["created_at"], reverse=True)
        return page(chosen, request)

    def create_examples(self, request: Request, dataset_id: str) -> Record:
        return self._store_examples(dataset_id, _example_records(request.parts()), new=True)

    def update_examples(self, request: Request, dataset_id: str) -> Record:
        return self._store_examples(dataset_id, _example_records(request.parts()), new=False)

    def read_example(self, _request: Request, example_id: str) -> Record:
        return found(self.examples, example_id)

    def _delete_example(self, example_id: str) -> None:
        dataset = self.datasets[found(self.examples, example_id)["dataset_id"]]
        del self.examples[example_id]
        self.deleted.add(example_id)  # an older version of the dataset still has it
        dataset["example_count"] -= 1

    def delete_examples(self, request: Request) -> Record:
        for example_id in request.query.get("example_ids", []):
            self._delete_example(example_id)
        return {}

    def _store_examples(self, dataset_id: str, given: dict[str, Record], *, new: bool) -> Record:
        dataset, stamp = found(self.datasets, dataset_id), now()
        known = [example_id for example_id in given if example_id in self.examples or example_id in self.deleted]
        if new and known:
            raise Refusal(409, f"Example {known[0]} already exists.")
        for example_id, one in given.items():
            old = {} if new else found(self.examples, example_id)
            split = one.pop("split", None)
            metadata = dict(one.pop("metadata", None) or old.get("metadata") or {})
            if new or split:
                metadata["dataset_split"] = [split or "base"] if isinstance(split, str | None) else split
            example: Record = {"inputs": {}, "outputs": None, "source_run_id": None, "created_at": stamp, **old, **one}
            example |= {"id": example_id, "dataset_id": dataset_id, "metadata": metadata, "modified_at": stamp}
            self.examples[example_id] = example
        if new:
            dataset["example_count"] += len(given)
        dataset["modified_at"] = stamp
        return {"example_ids": list(given), "count": len(given), "as_of": stamp}


def _example_records(parts: list[Part]) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for part in parts:
        example_id, _, field = part.name.partition(".")
        record = records.setdefault(example_id, {})
        if not field:
            record |= part.json()
        elif field in ("inputs", "outputs"):
            record[field] = part.json()
        else:
            raise Refusal(501, f"the double does not know {field}")
    return records
