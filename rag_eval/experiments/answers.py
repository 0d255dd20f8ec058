"""Compare the answers that a model gives from the passages of different configurations."""

from collections.abc import Callable, Sequence
from string import Template

from rag_eval.errors import ConfigurationError
from rag_eval.experiments.callables import Experiment, task
from rag_eval.experiments.evaluators import ExactMatch, LLMJudge
from rag_eval.experiments.results import Row
from rag_eval.formatting import choices, suggestion
from rag_eval.llm.asking import code_of
from rag_eval.llm.chat import ChatRequest, ChatService, ask_once, response_format
from rag_eval.llm.writing import FOLDER, WrittenText
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.exports import asked
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.retry import RetryPolicy
from rag_eval.storage.files import read_text

ANSWER = "answer"
"""Key of the expected answer in the metadata of a question."""
QUESTIONS = 50

_SYSTEM = "You answer questions from passages that a search engine found."
_CRITERIA = "The answer says what the expected answer, or the expected evidence, says of the question."


def answer_experiment(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    configurations: Sequence[str] = (),
    *,
    model: str = "gpt-4.1-mini",
    judge: str | None = None,
    questions: int = QUESTIONS,
    base_url: str | None = None,
) -> Experiment:
    """Return an experiment with one task per configuration, which answers questions from its passages.

    A task reads the passages that the objective counts: the first k passages, or those within the budget. A model
    judges each answer against the answer in the question's metadata, or against the evidence if there is none. If all
    questions have an answer, ``ExactMatch`` is measured too.

    Args:
        workspace: The workspace of the run.
        outcome: The run.
        configurations: Names of configurations. Default: the best and the last of the ranking.
        model: The model that answers.
        judge: The model that judges. Default: the one that answers.
        questions: How many questions are answered, evenly spread over the ground truth.
        base_url: The address of the models' service.

    Raises:
        ConfigurationError: A configuration is unknown, or there is no question with an answer.
    """
    if questions < 1:
        raise ConfigurationError(f"questions is {questions}: give 1 or more")
    names = _names(outcome, configurations)
    ranked = {configuration.name: configuration for configuration in outcome.ranked()}
    retrieved = {name: {row["query_id"]: row for row in asked(workspace, outcome, ranked[name])} for name in names}
    chosen = _spread(list(next(iter(retrieved.values()), {}).values()), questions)
    if not chosen:
        raise ConfigurationError(f"{outcome.run} has no answerable question: there is nothing to compare")
    rows = [
        {
            "input": row["user_input"],
            "output": str(row["metadata"].get(ANSWER) or "\n\n".join(row["reference_contexts"])),
            "passages": {name: retrieved[name][row["query_id"]]["retrieved_contexts"] for name in names},
        }
        for row in chosen
    ]
    service = ChatService(base_url)
    evaluators: list[object] = [LLMJudge(model=judge or model, criteria=_CRITERIA, client=service)]
    if all(row["metadata"].get(ANSWER) for row in chosen):
        evaluators.append(ExactMatch(ignore_case=True, strip=True))
    tasks = [task(name)(_answering(name, service, model)) for name in names]
    return Experiment(f"Answers of {outcome.run}", rows, tasks, evaluators)


def _names(outcome: BenchmarkOutcome, configurations: Sequence[str]) -> list[str]:
    """Return these configurations, or the best and the last one; raises ``ConfigurationError`` if one is unknown."""
    ranked = [configuration.name for configuration in outcome.ranked()]
    for name in configurations:
        if name not in ranked:
            raise ConfigurationError(
                f"{outcome.run} has no configuration {name!r}{suggestion(name, ranked)}: {choices(ranked, name)}"
            )
    return list(dict.fromkeys(configurations or ranked[:: max(1, len(ranked) - 1)]))


def _spread(rows: Sequence[Row], count: int) -> list[Row]:
    """Return this many answerable questions, evenly spread."""
    answerable = [row for row in rows if row["reference_contexts"]]
    step = max(1.0, len(answerable) / count)
    return [answerable[int(number * step)] for number in range(min(count, len(answerable)))]


def _answering(name: str, service: ChatService, model: str) -> Callable[[Row], str]:
    template = Template(read_text(FOLDER / "answer.md"))

    def answer(row: Row) -> str:
        passages, question = row["passages"][name], row["input"]
        code = code_of([*passages, question])
        texts = [f"<<<passage {code}>>>\n{text}\n<<<end of passage {code}>>>" for text in passages]
        user = template.substitute(
            passages="\n\n".join(texts) or "No passage was found.",
            question=f"<<<question {code}>>>\n{question}\n<<<end of question {code}>>>",
        )
        request = ChatRequest("", model, _SYSTEM, user.strip(), response_format(WrittenText), {})
        return ask_once(service, request, WrittenText, RetryPolicy(), f"the model {model}").text

    return answer
