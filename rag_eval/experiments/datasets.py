"""Rows that a service holds: datasets of LangSmith and of orq.ai."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from rag_eval.errors import ExperimentError, ServiceError
from rag_eval.experiments.types import Row

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import Example

PAGE = 50
LANGSMITH_PAGE = 100
ORQ_SECONDS = 30


class LangSmithDataset:
    """The examples of a LangSmith dataset; an example's only input or output stands for itself.

    The key and the endpoint are ``LANGSMITH_API_KEY`` and ``LANGSMITH_ENDPOINT``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def rows(self) -> Iterator[Row]:
        """The examples, page by page, with the ``id`` that ``LangSmithOutput`` knows them by.

        Raises ``ConfigurationError`` without a key, ``ExperimentError`` when there is no such dataset, and
        ``ServiceError`` when LangSmith does not give it.
        """
        from rag_eval.publishing.langsmith_datasets import find_dataset
        from rag_eval.publishing.langsmith_service import BRIEF, LangSmithService

        service = LangSmithService.connect(BRIEF)
        try:
            dataset = find_dataset(service, self._name)
            if dataset is None:
                raise ExperimentError(f"there is no LangSmith dataset {self._name!r}: check its name and the key")
            for start in count(0, LANGSMITH_PAGE):
                wanted = {"dataset_id": dataset.id, "offset": start, "limit": LANGSMITH_PAGE}
                page = service.ask(f"the LangSmith dataset {self._name!r} cannot be read", partial(_examples, wanted))
                for example in page:
                    found = {"input": _sole(example.inputs), "output": _sole(example.outputs)}
                    yield found | {"id": str(example.id), "metadata": example.metadata or {}}
                if len(page) < LANGSMITH_PAGE:
                    return
        finally:
            service.close()


def _examples(wanted: Mapping[str, Any], client: "Client") -> "list[Example]":
    return list(client.list_examples(**wanted))


class OrqDataset:
    """The data points of an orq.ai dataset, by its id; needs the extra ``orq`` and ``ORQ_API_KEY``."""

    def __init__(self, dataset_id: str) -> None:
        self._id = dataset_id

    def rows(self) -> Iterator[Row]:
        """The data points, page by page; raises ``ServiceError`` when orq.ai does not give them."""
        client = self._client()
        after: str | None = None
        while True:
            page = self._page(client, after)
            for point in page.data:
                found = {"input": _sole(point.inputs), "output": point.expected_output}
                yield found | {"id": point.id, "messages": point.messages}
            if not page.has_more or not page.data:
                return
            after = page.data[-1].id

    def _page(self, client: Any, after: str | None) -> Any:
        import httpx
        from orq_ai_sdk.models import OrqError

        try:
            return client.datasets.list_datapoints(dataset_id=self._id, limit=PAGE, starting_after=after)
        except (OrqError, httpx.HTTPError) as error:
            raise ServiceError(f"the orq.ai dataset {self._id!r} cannot be read: {type(error).__name__}") from None

    def _client(self) -> Any:
        key = os.environ.get("ORQ_API_KEY")
        if not key:
            raise ExperimentError("ORQ_API_KEY is not set: set it to read a dataset of orq.ai")
        try:
            from orq_ai_sdk import Orq
        except ImportError:
            raise ExperimentError("orq.ai's SDK is not installed: pip install 'rag-eval[orq]'") from None
        address = os.environ.get("ORQ_BASE_URL") or None
        return Orq(api_key=key, server_url=address, timeout_ms=ORQ_SECONDS * 1_000)


def _sole(values: Mapping[str, Any] | None) -> Any:
    if values is None:
        return None
    return next(iter(values.values())) if len(values) == 1 else dict(values)
