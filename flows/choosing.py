"""The benchmark that was asked for: a file's, or the sample's, with parts of it put in their place."""

from pathlib import Path

from rag_eval import sample
from rag_eval.config.benchmark import BenchmarkConfig
from rag_eval.config.load import load_config
from rag_eval.errors import ConfigurationError


def chosen_benchmark(
    file: Path | None,
    corpus: Path | None = None,
    truth: Path | None = None,
    glob: str | None = None,
    langsmith_dataset: str | None = None,
) -> BenchmarkConfig:
    """The benchmark of a file, or the sample's, with what is given in the place of what it says.

    Raises ``ConfigurationError`` on a file that cannot be used, on an empty name of a dataset, and when the sample's
    documents are to be scored against other truth, or the reverse.
    """
    if file is None and (corpus is None) != (truth is None):
        raise ConfigurationError("corpus and truth go together unless a benchmark file has the other: give both")
    if langsmith_dataset is not None and not langsmith_dataset.strip():
        raise ConfigurationError("the dataset to publish to has no name: give that of a LangSmith dataset")
    chosen = load_config(file or sample.BENCHMARK)
    given: dict[str, Path | str | None] = {
        "corpus": corpus and corpus.absolute(),
        "ground_truth": truth and truth.absolute(),
        "glob": glob,
        "langsmith_dataset": langsmith_dataset,
    }
    return chosen.model_copy(update={key: value for key, value in given.items() if value is not None})
