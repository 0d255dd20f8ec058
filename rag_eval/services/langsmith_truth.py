"""Pull ground truth from LangSmith datasets, for a file, an import, or as a source of a benchmark."""

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Annotated, ClassVar

from pydantic import Field

from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.importing.importer import ImportedTruth, ImportNotes
from rag_eval.ground_truth.sources import Observed, Reading, Surroundings
from rag_eval.ground_truth.truth_files import truth_text
from rag_eval.parts import Shown, part
from rag_eval.parts.part_settings import Name
from rag_eval.services.langsmith_client import LangSmithService, langsmith_access
from rag_eval.services.langsmith_datasets import (
    TRUTH_KEYS,
    GroundTruth,
    check_type,
    chunk_level_truth,
    has_truth,
    read_examples,
    token_level_truth,
)
from rag_eval.storage.files import data_sha256
from rag_eval.types.documents import Corpus
from rag_eval.types.ids import EvaluationType


def pull_truth(service: LangSmithService, dataset_name: str, level: EvaluationType | None = None) -> GroundTruth:
    """Return the ground truth of a dataset in the order of the query ids.

    Raises:
        GroundTruthError: The dataset is missing, of another level, or has an invalid example.
        ServiceError: LangSmith fails.
    """
    examples = read_examples(service, dataset_name)
    if level is not None:
        check_type(examples, level, dataset_name)
    kinds = {kind for example in examples for kind in TRUTH_KEYS if has_truth(example, kind)}
    if len(kinds) != 1:
        problem = "both token-level and chunk-level" if kinds else "neither token-level nor chunk-level"
        raise GroundTruthError(
            f"the LangSmith dataset {dataset_name!r} has {problem} ground truth: its examples need "
            "outputs.relevant_spans, or all of them outputs.relevant_chunk_ids"
        )
    truth: GroundTruth
    if kinds == {"token-level"}:
        truth = sorted(token_level_truth(examples, dataset_name), key=lambda item: item.query.id)
    else:
        truth = sorted(chunk_level_truth(examples, dataset_name), key=lambda item: item.query.id)
    for first, second in pairwise(item.query.id for item in truth):
        if first == second:
            raise GroundTruthError(
                f"two examples of the LangSmith dataset {dataset_name!r} have the query {first}: merge them into one"
            )
    return truth


def read_langsmith(dataset_name: str) -> ImportedTruth:
    """Import the ground truth of a dataset with the key and the endpoint of the environment.

    Raises:
        ConfigurationError: There is no key.
        GroundTruthError: The dataset cannot be used.
        ServiceError: LangSmith fails.
    """
    with closing(LangSmithService.connect()) as service:
        return ImportedTruth(pull_truth(service, dataset_name), ImportNotes())


@part
class LangSmithTruth:
    """A LangSmith dataset, pulled by every run; the key is read from LANGSMITH_API_KEY."""

    dataset: Annotated[Name, Shown] = Field(description="Name of the dataset.")

    remote: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return f"langsmith {self.dataset}"

    def check(self, corpus: Corpus, level: EvaluationType) -> str:
        """Describe what a run will do, without a request; raises ``ConfigurationError`` if there is no key."""
        langsmith_access()
        return f"the questions of the LangSmith dataset {self.dataset!r} are pulled when it runs"

    def observe(self, level: EvaluationType) -> Observed:
        """Pull the dataset; raises like ``read_langsmith``."""
        with closing(LangSmithService.connect()) as service:
            truth = pull_truth(service, self.dataset, level)
        return Observed(data_sha256(truth_text(truth)), truth)

    def read(
        self, observed: Observed, corpus: Callable[[], Corpus], level: EvaluationType, around: Surroundings
    ) -> Reading:
        truth = observed.truth or ()
        return Reading(truth, len(truth))
