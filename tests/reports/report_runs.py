"""Whole benchmark runs for the tests of the reports, stage by stage, without Prefect."""

from datetime import UTC, datetime
from typing import Any

from rag_eval.benchmark.stage import Stage

from rag_eval.benchmark import engine, stages
from rag_eval.benchmark.config import BenchmarkConfig, Configuration
from rag_eval.benchmark.inputs import BenchmarkInputs
from rag_eval.benchmark.outcome import (
    BenchmarkOutcome,
    ConfigurationFailure,
    ConfigurationOutcome,
    keep_outcome,
    summarise,
)
from rag_eval.errors import RagEvalError
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.ground_truth_steps import load_ground_truth
from rag_eval.pipeline.workspace import Workspace


def run(config: BenchmarkConfig, workspace: Workspace, reanchor: bool = False) -> BenchmarkOutcome:
    """Run a benchmark and keep its outcome; a configuration that fails is among the failures."""
    started = datetime.now(UTC)
    corpus = CorpusSource.of(config.corpus, config.glob, config.loaders)
    documents = stages.load_corpus(workspace, corpus)
    truth = load_ground_truth(workspace, config.ground_truth[0], documents, config.evaluation_type, reanchor)
    inputs = BenchmarkInputs.of(config, documents, truth)
    done, failed = [], {}
    for configuration in config.configurations():
        try:
            done.append(evaluate(workspace, configuration, inputs))
        except RagEvalError as error:
            record = configuration.record()
            failed[configuration.name] = ConfigurationFailure(configuration=record, reason=str(error), stages={})
    return keep_outcome(workspace, started, config, corpus, inputs, done, failed, {})


def evaluate(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> ConfigurationOutcome:
    def run(stage: Stage, *given: Any) -> Any:
        return stage(workspace, *given)

    return summarise(workspace, configuration, engine.evaluate(run, configuration, inputs), {}, inputs)
