"""Generate ground truth: ask a model about new documents, and add its questions to a file."""

from pathlib import Path

from prefect import flow, unmapped

from rag_eval.config.loading import load_config
from rag_eval.generation.growing import GeneratedTruth
from rag_eval.generation.settings import DEFAULT_MODEL, GenerationOptions
from rag_eval.llm.cost import Prices
from rag_eval.pipeline.references import TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.housekeeping import in_use
from rag_eval.sample import BENCHMARK
from tasks.artifacts import show_generation, upload_truth
from tasks.corpus import find_documents, load_corpus
from tasks.current_folder import enter_project_folder
from tasks.ground_truth import ground_truth
from tasks.runners import threads


@flow(name="rag-eval-generate", flow_run_name="{output}", task_runner=threads(), persist_result=False)
def generate(
    benchmark_file: str = "",
    corpus: str = "",
    glob: list[str] = [],  # noqa: B006  # never changed; the form shows a list
    output: str = "generated-truth.jsonl",
    model: str = DEFAULT_MODEL,
    queries: str = "",
    queries_per_doc: int = 5,
    max_cost: float = 0,
    cross_document: int = 0,
    unanswerable: int = 0,
    base_url: str = "",
    input_price: float = 0,
    output_price: float = 0,
    langsmith_dataset: str = "",
    workspace: str = ".rag-eval",
) -> TruthRef:
    """Have a model write questions about new documents, and add them to a ground-truth file.

    Args:
        benchmark_file: A YAML or TOML file on the worker's machine that names the documents. Empty: the sample.
        corpus: A folder of documents, instead of that in the benchmark file.
        glob: Patterns of the documents, such as **/*.md. Empty: as in the benchmark file.
        output: The ground-truth file to add to; created if missing.
        model: The model that writes questions; the worker needs OPENAI_API_KEY in its environment.
        queries: A file of real questions to find answers for, instead of writing questions.
        queries_per_doc: The number of questions for each document.
        max_cost: Maximum cost in US dollars; the next run continues. 0: no limit.
        cross_document: The total number of questions that need several documents.
        unanswerable: The total number of questions that no document answers.
        base_url: The address of another server with OpenAI's API.
        input_price: US dollars per million input tokens. 0: the list price, if it is known.
        output_price: US dollars per million output tokens, set together with the input price.
        langsmith_dataset: A LangSmith dataset to upload the questions to. Empty: none.
        workspace: Where answers are stored between runs: a folder on the worker's machine, or s3://bucket/path.
    """
    enter_project_folder()
    prices = Prices(input=input_price, output=output_price) if input_price or output_price else None
    source = GeneratedTruth(
        model=model,
        queries=Path(queries) if queries else None,
        queries_per_doc=queries_per_doc,
        file=Path(output),
        max_cost=max_cost or None,
        options=GenerationOptions(cross_document=cross_document, unanswerable=unanswerable),
        base_url=base_url or None,
        prices=prices,
    )
    config, target = load_config(benchmark_file or BENCHMARK), Workspace.at(workspace)
    folder = Path(corpus) if corpus else config.corpus
    with in_use(target):
        sources = find_documents(folder, glob or config.glob, config.loaders)
        documents = load_corpus.map(sources, workspace=unmapped(target)).result()
        try:
            truth = ground_truth([source], documents, source.level, workspace=target)
        finally:
            show_generation(source.report)
        if langsmith_dataset:
            upload_truth(source.file, langsmith_dataset)
        return truth
