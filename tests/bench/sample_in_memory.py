"""Evaluate the configurations of the sample in memory, one after the other."""

from rag_eval.config.loading import load_config
from rag_eval.evaluation.in_memory import InMemoryInputs, evaluate
from rag_eval.ground_truth.copies import credit_copies
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.pipeline.inputs import measured_metrics, search_depth
from rag_eval.sample import BENCHMARK, CORPUS, GROUND_TRUTH
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.tables import documents_to_table, truth_to_tables
from rag_eval.types.documents import Corpus


def main() -> None:
    config = load_config(BENCHMARK)
    corpus = Corpus.from_folder(CORPUS)
    truth = credit_copies(read_token_level(GROUND_TRUTH), corpus, config.copies)
    metrics = measured_metrics(config)
    depth = search_depth(config, metrics)
    inputs = InMemoryInputs("token-level", documents_to_table(corpus), truth_to_tables(truth), metrics, config.k, depth)
    for configuration in config.configurations():
        store = None if configuration.store is None else InMemoryVectorStore()
        evaluate(configuration.model_copy(update={"store": store}), inputs)


if __name__ == "__main__":
    main()
