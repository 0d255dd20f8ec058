"""Texts that a model writes for a part: a context for a chunk, another wording of a question.

A part that asks is a ``TextWriter``, whose fields say whom and for how much. ``Answers`` asks, from the cache where it
can, and counts what that took; what a model does not give is None, and the part says what stands in its place.
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
    """Return the texts that hold something, each once, without the whitespace around them."""
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _some(given: T) -> T:
    # Checked after the answer, and no part of the schema that is sent: not every server knows a least length.
    if not usable([given] if isinstance(given, str) else given):
        raise ValueError("it holds no text")
    return given


class WrittenText(ModelAnswer):
    """One text that holds something."""

    text: Annotated[str, AfterValidator(_some)]


class WrittenTexts(ModelAnswer):
    """Several texts, one of which holds something."""

    texts: Annotated[list[str], AfterValidator(_some)]


@part
class AsksModel:
    """A part that asks a model by OpenAI's protocol: whom, for how much, and how; the key is ``OPENAI_API_KEY``."""

    remote = True
    cost = "by the token, as the model's prices say"

    model: Annotated[Name, Shown, Field(description="The model's name.")] = "gpt-4.1-mini"
    _: KW_ONLY
    base_url: Annotated[
        Address | None,
        Field(description="Where the service is, without credentials; null: OPENAI_BASE_URL, else OpenAI's own."),
    ] = None
    max_cost: Annotated[
        StrictFloat | None, Running, Field(gt=0, description="US dollars that may be spent at most; null: no limit.")
    ] = None
    concurrency: Annotated[Count, Running, Field(description="How many requests run at once.")] = 4
    timeout: Annotated[StrictFloat, Running, Field(gt=0, description="Seconds that one request may take.")] = 120.0
    max_retries: Annotated[Whole, Running, Field(description="How often a failed request is sent again.")] = 5

    @property
    def missing_key(self) -> str | None:
        """The variable that a key is missing in."""
        return missing_key(self.base_url)

    @cached_property
    def client(self) -> ChatService:
        """The service, which needs no key before it is asked."""
        return ChatService(self.base_url, self.timeout)


@part
class TextWriter(AsksModel):
    """A part that has a model write texts; every answer is kept, and nothing is asked twice.

    ``max_cost`` ends asking before it could be passed.
    """

    prompt = ""
    """The file of the prompt, which subclasses name."""

    _: KW_ONLY
    temperature: Annotated[
        StrictFloat | None, Field(ge=0, le=2, description="The temperature of the model; null: the service's own.")
    ] = None
    max_output_tokens: Annotated[Count, Field(ge=16, description="The most tokens of one answer.")] = 1_000
    attempts: Annotated[Count, Field(le=10, description="How often a text is asked for until it can be used.")] = 2
    input_price: Annotated[
        StrictFloat | None,
        Running,
        Field(ge=0, description="US dollars for a million tokens read; null: OpenAI's list price."),
    ] = None
    output_price: Annotated[
        StrictFloat | None,
        Running,
        Field(ge=0, description="US dollars for a million tokens written; null: OpenAI's list price."),
    ] = None

    def __post_init__(self) -> None:
        if self.max_cost is not None and self.prices is None:
            raise ConfigurationError(
                f"a limit on the cost needs prices, and those of {self.model!r} are not known at this server: "
                "give input_price and output_price"
            )

    @property
    def identity(self) -> str:
        """The digest of the prompt and of the server."""
        return data_sha256([self.template("system"), self.template(self.prompt), server_of(self.client)])

    @property
    def prices(self) -> Prices | None:
        """Those given, or else OpenAI's own; None where they are not known."""
        if self.input_price is not None and self.output_price is not None:
            return Prices(input=self.input_price, output=self.output_price)
        return list_prices(self.model) if is_openai(self.client) else None

    def template(self, name: str) -> str:
        return read_text(FOLDER / f"{name}.md")

    def request(self, answer: type[BaseModel], count: int = 0, **texts: str) -> ChatRequest:
        """Return the request that has these texts, each between its marks, and the number, in the prompt."""
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
    """Asks models for the parts of one step; answers are stored in ``folder``, and what they took is counted.

    ``storage`` is that of the workspace the folder is in, if it is in one.
    ``tokens`` are those of all answers, kept ones too, ``cost`` (None: prices are not known) and ``fresh`` those of
    now; ``missing`` is how many texts no model gave, ``spent`` what counts towards ``max_cost``.
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
        """Return the answers to requests, each with what it is about; None where none could be used.

        Raises ``ServiceError`` when the service fails for good, and ``ConfigurationError`` when ``max_cost`` is
        reached before all are answered: what was answered is kept. Where the answers may be ``is_partial``, those that
        were not asked for are None in its stead.
        """
        asker = Asker(
            writer.client,
            AnswerCache(self.folder, self.storage),
            purposes=[writer.prompt],
            prices=writer.prices,
            max_cost=writer.max_cost,
            spent=self.spent,  # a step asks once for every shard, and has one limit
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
                "texts: raise it; what was answered is kept, and the same again goes on from there"
            )
        self.total += len(requests)
        self.fresh += paid.fresh.calls
        self.tokens += sum(one.input_tokens + one.output_tokens for one in (paid.fresh, paid.cached))
        self.cost = None if self.cost is None or paid.fresh.cost is None else self.cost + paid.fresh.cost
        answers = [reply.answer if reply and isinstance(reply.answer, answer) else None for reply in replies]
        self.missing += answers.count(None)
        return answers
