"""Let a model write texts for parts, such as the context of a chunk or a rewritten question.

A part that asks is a ``TextWriter``, whose fields say which model, and at what cost. ``Answers`` sends its requests,
uses the cache, and counts. If the model gives no usable answer, the part gets None and uses a fallback.
"""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from string import Template
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, Field, StrictFloat

from rag_eval.errors import ConfigurationError
from rag_eval.llm.asking import Asker, ModelRequest, code_of
from rag_eval.llm.chat import AnswerCache, ChatRequest, ChatService, ModelAnswer, is_openai, response_format, server_of
from rag_eval.llm.client import missing_key
from rag_eval.llm.cost import Prices, list_prices
from rag_eval.parts import Running, Shown, part
from rag_eval.parts.part_settings import Address, Count, Name, Whole
from rag_eval.retry import RetryPolicy
from rag_eval.storage.bucket import Storage
from rag_eval.storage.files import data_sha256, read_text

FOLDER = Path(__file__).parent / "prompts"
T = TypeVar("T", str, list[str])
M = TypeVar("M", bound=BaseModel)


def usable(texts: Iterable[str]) -> list[str]:
    """Return the distinct texts that are not blank, stripped."""
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _not_blank(value: T) -> T:
    # Checked here and not in the schema, because not every server supports minLength.
    if not usable([value] if isinstance(value, str) else value):
        raise ValueError("it contains no text")
    return value


class WrittenText(ModelAnswer):
    """A text that is not blank."""

    text: Annotated[str, AfterValidator(_not_blank)]


class WrittenTexts(ModelAnswer):
    """Texts of which at least one is not blank."""

    texts: Annotated[list[str], AfterValidator(_not_blank)]


@part
class AsksModel:
    """A part that asks a model through the OpenAI protocol. The key is ``OPENAI_API_KEY``."""

    remote = True
    cost = "by the token, at the model's prices"

    model: Annotated[Name, Shown, Field(description="Name of the model.")] = "gpt-4.1-mini"
    _: KW_ONLY
    base_url: Annotated[
        Address | None,
        Field(description="Address of the service, without credentials; null: OPENAI_BASE_URL, else OpenAI."),
    ] = None
    max_cost: Annotated[
        StrictFloat | None, Running, Field(gt=0, description="Maximum cost in US dollars; null: no limit.")
    ] = None
    concurrency: Annotated[Count, Running, Field(description="Number of concurrent requests.")] = 4
    timeout: Annotated[StrictFloat, Running, Field(gt=0, description="Timeout of a request in seconds.")] = 120.0
    max_retries: Annotated[Whole, Running, Field(description="Maximum number of retries of a request.")] = 5

    @property
    def missing_key(self) -> str | None:
        """The environment variable of the missing key, or None."""
        return missing_key(self.base_url)

    @cached_property
    def client(self) -> ChatService:
        """The service. It needs no key before the first request."""
        return ChatService(self.base_url, self.timeout)


@part
class TextWriter(AsksModel):
    """A part that lets a model write texts. Answers are cached, and requests stop before ``max_cost`` is exceeded."""

    prompt = ""
    """The name of the prompt file, set by subclasses."""

    _: KW_ONLY
    temperature: Annotated[
        StrictFloat | None,
        Field(ge=0, le=2, description="Temperature of the model; null: the default of the service."),
    ] = None
    max_output_tokens: Annotated[Count, Field(ge=16, description="Maximum number of tokens of an answer.")] = 1_000
    attempts: Annotated[Count, Field(le=10, description="Maximum number of attempts to get a usable text.")] = 2
    input_price: Annotated[
        StrictFloat | None,
        Running,
        Field(ge=0, description="US dollars per million input tokens; null: OpenAI's list price."),
    ] = None
    output_price: Annotated[
        StrictFloat | None,
        Running,
        Field(ge=0, description="US dollars per million output tokens; null: OpenAI's list price."),
    ] = None

    def __post_init__(self) -> None:
        if self.max_cost is not None and self.prices is None:
            raise ConfigurationError(
                f"a limit on the cost needs prices, and those of {self.model!r} at this server are unknown: "
                "set input_price and output_price"
            )

    @property
    def identity(self) -> str:
        """The digest of the prompt and the server."""
        return data_sha256([self.template("system"), self.template(self.prompt), server_of(self.client)])

    @property
    def prices(self) -> Prices | None:
        """The prices in the settings, else OpenAI's list prices, or None if they are unknown."""
        if self.input_price is not None and self.output_price is not None:
            return Prices(input=self.input_price, output=self.output_price)
        return list_prices(self.model) if is_openai(self.client) else None

    def template(self, name: str) -> str:
        return read_text(FOLDER / f"{name}.md")

    def request(self, answer: type[BaseModel], count: int = 0, **texts: str) -> ChatRequest:
        """Return the request with these texts, each enclosed in marks, and with the count in the prompt."""
        code = code_of(list(texts.values()))
        marked = {name: f"<<<{name} {code}>>>\n{text}\n<<<end of {name} {code}>>>" for name, text in texts.items()}
        return ChatRequest(
            server=server_of(self.client),
            model=self.model,
            system=self.template("system").strip(),
            user=Template(self.template(self.prompt)).substitute(marked, count=count).strip(),
            response_format=response_format(answer),
            settings={} if self.temperature is None else {"temperature": self.temperature},
            max_output_tokens=self.max_output_tokens,
        )


@dataclass
class Answers:
    """Sends the requests of the parts of one step, and counts.

    Args:
        folder: Where answers are cached.
        storage: The storage of the workspace of this folder, if any.
        total: The number of requests.
        fresh: Those that were not cached.
        tokens: The tokens of all answers, including cached ones.
        cost: The cost of the fresh answers, None without known prices.
        missing: The number of requests without a usable answer.
        spent: What counts towards ``max_cost``.
    """

    folder: Path
    storage: Storage | None = None
    total: int = 0
    fresh: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    missing: int = 0
    spent: float = 0.0

    def of(
        self,
        writer: TextWriter,
        requests: Sequence[tuple[str, ChatRequest]],
        answer: type[M],
        *,
        is_partial: bool = False,
    ) -> list[M | None]:
        """Return the answers to requests, each given with its subject. Requests without a usable answer get None.

        Args:
            writer: The part that asks.
            requests: Subjects and requests.
            answer: The form of the answers.
            is_partial: Return None for requests beyond ``max_cost`` instead of raising an error.

        Raises:
            ServiceError: The service fails for good.
            ConfigurationError: ``max_cost`` is reached. The answers so far are cached.
        """
        asker = Asker(
            writer.client,
            AnswerCache(self.folder, self.storage),
            purposes=[writer.prompt],
            prices=writer.prices,
            max_cost=writer.max_cost,
            spent=self.spent,  # a step with several shards has one limit
            retries=RetryPolicy(max_retries=writer.max_retries),
            attempts=writer.attempts,
            concurrency=writer.concurrency,
        )
        replies = asker.ask_at_once([ModelRequest(writer.prompt, *request, answer) for request in requests])
        paid, self.spent = asker.ledger.entries[-1], asker.budget.spent
        if asker.budget.is_reached and not is_partial:
            done = len(replies) - replies.count(None)
            raise ConfigurationError(
                f"max_cost of {writer.model}, ${writer.max_cost:g}, is reached after {done:,} of {len(replies):,} "
                "texts: raise it and run it again to continue, the answers so far are cached"
            )
        self.total += len(requests)
        self.fresh += paid.fresh.calls
        self.tokens += sum(usage.input_tokens + usage.output_tokens for usage in (paid.fresh, paid.cached))
        self.cost = None if self.cost is None or paid.fresh.cost is None else self.cost + paid.fresh.cost
        answers = [reply.answer if reply and isinstance(reply.answer, answer) else None for reply in replies]
        self.missing += answers.count(None)
        return answers
