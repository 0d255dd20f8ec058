"""Generating ground truth: ask a model about the documents that are new, and add what it answers to a file."""

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
    glob: list[str] = [],  # noqa: B006  # which is never changed; the form shows a list of texts
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
    """Have a model write questions about documents; those that the file has stay, and new documents are asked about.

    Args:
        benchmark_file: A YAML or TOML file on the worker's machine, whose documents are asked about. Empty: the sample.
        corpus: A folder of documents, in place of the benchmark file's.
        glob: Which files are documents, such as **/*.md, one pattern or more. Empty: as the benchmark file says.
        output: The ground-truth file to add to; it is made where it is not there.
        model: The model that writes the questions; its key is OPENAI_API_KEY in the worker's environment.
        queries: A file of real questions, to quote what answers each in place of writing any.
        queries_per_doc: How many questions each document gets.
        max_cost: The most US dollars to pay; what is left is asked by the next run. 0: no limit.
        cross_document: How many questions need several documents, in all.
        unanswerable: How many questions no document answers, in all.
        base_url: The address of another server that speaks OpenAI's protocol.
        input_price: US dollars per million input tokens. 0: the list price of the model, if it is known.
        output_price: US dollars per million output tokens, given together with the input price.
        langsmith_dataset: A LangSmith dataset that gets the questions too. Empty: none.
        workspace: Where answers are kept between runs: a folder of the worker's machine, or s3://bucket/path.
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
    chosen, kept = load_config(benchmark_file or BENCHMARK), Workspace.at(workspace)
    folder = Path(corpus) if corpus else chosen.corpus
    with in_use(kept):
        files = find_documents(folder, glob or chosen.glob, chosen.loaders)
        documents = load_corpus.map(files, unmapped(kept)).result()
        try:
            truth = ground_truth([source], documents, source.level, kept)
        finally:
            show_generation(source.report)
        if langsmith_dataset:
            upload_truth(kept, source.file, langsmith_dataset)
        return truth
