"""A LangSmith dataset of either type; it holds no documents."""

from rag_eval.ground_truth.importing.result import ImportedTruth, ImportNotes, imported


def read_langsmith(dataset_name: str) -> ImportedTruth:
    """The ground truth of a dataset, with the key and the endpoint of the environment.

    Raises ``ConfigurationError`` without a key, ``GroundTruthError`` when the dataset cannot be used and
    ``ServiceError`` when LangSmith fails.
    """
    from rag_eval.publishing.langsmith_datasets import pull_truth
    from rag_eval.publishing.langsmith_service import LangSmithService

    service = LangSmithService.connect()
    try:
        return imported(pull_truth(service, dataset_name), ImportNotes())
    finally:
        service.close()
