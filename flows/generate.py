"""Generating ground truth: ask a model about every document, place what it answers, and write it down."""

from typing import Any

from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from rag_eval.benchmark.housekeeping import using_workspace
from rag_eval.benchmark.workspace import Workspace
from rag_eval.generation.levels import GenerationConfig
from rag_eval.generation.report import GenerationReport
from tasks.generation import ask_all, assemble, plan, show_report, verify

# Threads enough: the generator limits how many requests are under way at once. Prefect's own types do not fit here.
BATCHES_AT_ONCE: Any = ThreadPoolTaskRunner(max_workers=64)


@flow(name="generate", flow_run_name="{config.output.name}", task_runner=BATCHES_AT_ONCE)
@using_workspace
def generate(config: GenerationConfig, workspace: Workspace) -> GenerationReport:
    """Write ground truth for a corpus; answers are kept in the workspace, and what was paid once is not paid again.

    Args:
        config: What to generate, from which documents, with which model.
        workspace: Where answers are kept between runs.
    """
    generator = config.generator(workspace.root, storage=workspace.storage)
    try:
        with workspace.growing(workspace.root / "cache" / "answers"):
            assignments = plan(generator, config.queries_per_doc)
            replies = ask_all(generator, assignments)
            verdicts = ask_all(generator, verify(generator, replies))
        truth = assemble(generator, assignments, replies, verdicts)
        config.write(truth)
        if config.upload:
            generator.upload(truth, config.dataset_name)
    finally:
        show_report(generator.report)
    return generator.report
