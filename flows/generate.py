"""Generating ground truth: ask a model about every document, place what it answers, and write it down."""

from prefect import flow

from rag_eval.benchmark.workspace import Workspace
from rag_eval.generation.levels import GenerationConfig
from rag_eval.generation.report import GenerationReport
from tasks.generation import ask_all, assemble, batches_at_once, plan, show_report, verify


@flow(name="generate", flow_run_name="{config.output.name}", task_runner=batches_at_once())
def generate(config: GenerationConfig, workspace: Workspace) -> GenerationReport:
    """Write ground truth for a corpus; answers are kept in the workspace, and what was paid once is not paid again.

    Args:
        config: What to generate, from which documents, with which model.
        workspace: Where answers are kept between runs.
    """
    generator = config.generator(workspace.root)
    try:
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
