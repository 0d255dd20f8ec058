"""OpenAI's chat protocol: requests, answers with a schema, and the cache of answers."""

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from rag_eval.errors import ConfigurationError, ServiceError, preview
from rag_eval.llm.client import DEFAULT_HOST, CallFailure, OpenAIClient, failure_of, part_of
from rag_eval.parts.objects import settled
from rag_eval.parts.part_settings import Record
from rag_eval.retry import Failure, RetryPolicy
from rag_eval.storage.bucket import Storage
from rag_eval.storage.files import check_folder, data_sha256
from rag_eval.storage.rows import KEY, KeyedRows
from rag_eval.tokens import count_tokens

# Approximate number of tokens that the chat format adds to a message.
TOKENS_AROUND_A_MESSAGE = 8


@dataclass(frozen=True)
class ChatRequest:
    """A request and its server.

    Args:
        server: Distinguishes models of the same name on different servers.
        model: The model.
        system: The system message.
        user: The user message.
        response_format: The JSON schema of the answer.
        settings: Further arguments, such as a temperature.
        max_output_tokens: The limit of the answer. It is not part of the digest, because an answer within the limit is
            the same without it.
    """

    server: str
    model: str
    system: str
    user: str
    response_format: Mapping[str, Any]
    settings: Mapping[str, float | int]
    max_output_tokens: int | None = None

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]

    def arguments(self, attempt: int) -> dict[str, Any]:
        """Return the keyword arguments for ``chat.completions.create``."""
        sent: dict[str, Any] = {
            "model": self.model,
            "messages": self.messages,
            "response_format": dict(self.response_format),
            **self._settings(attempt),
        }
        return sent if self.max_output_tokens is None else {**sent, "max_completion_tokens": self.max_output_tokens}

    def digest(self, attempt: int) -> str:
        """Return the SHA-256, in hex, of everything that determines the answer to this attempt."""
        shape = dict(self.response_format)
        parts = [self.server, self.model, self.messages, shape, self._settings(attempt), attempt]
        return data_sha256(["chat", 1, *parts])

    @cached_property
    def input_tokens(self) -> int:
        """The approximate number of input tokens, in the encoding ``o200k_base``."""
        texts = (self.system, self.user, json.dumps(dict(self.response_format)))
        return sum(count_tokens(text, "o200k_base") + TOKENS_AROUND_A_MESSAGE for text in texts)

    def _settings(self, attempt: int) -> dict[str, float | int]:
        # With the same seed, the model would repeat the unusable answer.
        return {name: value + attempt if name == "seed" else value for name, value in self.settings.items()}


class Answer(Record):
    """An answer, usable or not. Tokens are counted by the service, or else in the encoding ``o200k_base``."""

    content: str | None
    refusal: str | None
    finish_reason: str | None
    input_tokens: int
    output_tokens: int
    max_output_tokens: int | None = None
    """The limit of the request."""

    def serves(self, max_output_tokens: int | None) -> bool:
        """Return whether the answer is valid under this limit. A truncated answer is not valid under a higher one."""
        if self.finish_reason != "length" or self.max_output_tokens is None:
            return True
        return max_output_tokens is not None and max_output_tokens <= self.max_output_tokens


ANSWERS = pa.schema(
    [
        pa.field("request_sha256", KEY, nullable=False),
        pa.field("content", pa.string()),
        pa.field("refusal", pa.string()),
        pa.field("finish_reason", pa.string()),
        pa.field("input_tokens", pa.int64(), nullable=False),
        pa.field("output_tokens", pa.int64(), nullable=False),
        pa.field("max_output_tokens", pa.int64()),
    ]
)

ANSWERS_FOLDER = Path("cache", "answers")
"""The folder of answers in a workspace."""

# Requests whose digests start with the same digits share a lock.
LOCK_DIGITS = 3


class AnswerCache:
    """A folder of answers by the digest of their request. Raises ``ConfigurationError`` if it is a file."""

    def __init__(self, folder: Path, storage: Storage | None = None) -> None:
        self._rows = KeyedRows(folder, ANSWERS, storage)

    def find(self, digest: str, max_output_tokens: int | None = None) -> Answer | None:
        """Return the cached answer to a request if it is valid under this limit."""
        answer = self.find_many([digest]).get(digest)
        return answer if answer is not None and answer.serves(max_output_tokens) else None

    def find_many(self, digests: Sequence[str]) -> dict[str, Answer]:
        """Return the cached answers to requests, under any limit."""
        return {digest: Answer(**row) for digest, row in self._rows.get(digests).items()}

    def keep(self, digest: str, answer: Answer) -> None:
        """Store an answer and replace an older one. Raises ``ArtifactError`` if it cannot be written."""
        self._rows.put({digest: answer.model_dump()})

    def locked(self, digest: str, stopped: threading.Event) -> AbstractContextManager[None]:
        """Lock a request until ``stopped``. Raises ``ArtifactError`` if the folder is not writable."""
        check_folder(self._rows.folder)
        return self._rows.locked(digest[:LOCK_DIGITS], stopped)


class ModelAnswer(BaseModel):
    """The base class for forms of answers. Strict output requires every key and forbids others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


M = TypeVar("M", bound=BaseModel)

AnswerFault = Literal["refused", "truncated", "filtered", "empty answer", "schema mismatch"]


@dataclass(frozen=True, slots=True)
class UnusableAnswer:
    """The reason why an answer is unusable."""

    fault: AnswerFault
    detail: str


def response_format(model: type[BaseModel]) -> dict[str, Any]:
    """Return the ``response_format`` that requires an answer in this form."""
    schema = model.model_json_schema()
    return {"type": "json_schema", "json_schema": {"name": model.__name__, "strict": True, "schema": schema}}


def read_answer(answer: Answer, model: type[M]) -> M | UnusableAnswer:
    """Return the content as the model, or why it is unusable."""
    if answer.refusal:
        return UnusableAnswer("refused", preview(answer.refusal))
    if answer.finish_reason == "length":
        return UnusableAnswer("truncated", f"after {answer.output_tokens:,} tokens")
    if answer.finish_reason == "content_filter":
        return UnusableAnswer("filtered", "by the service's content filter")
    if not (answer.content or "").strip():
        return UnusableAnswer("empty answer", "no content")
    try:
        data = json.loads(answer.content or "")
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the answer"
        return UnusableAnswer("schema mismatch", preview(f"{place}: {first['msg']}", 120))
    except (ValueError, RecursionError):
        return UnusableAnswer("schema mismatch", f"not JSON: {preview(answer.content or '')}")


CHECK = "check the model, which must support structured outputs, its options and the server's address"
# Errors that concern a single text: the other texts can continue.
REFUSED_TEXTS = ("content_filter", "content_policy_violation", "context_length_exceeded")


class ChatClient(Protocol):
    """A client like OpenAI's, with ``client.chat.completions.create(model=, messages=, response_format=)``.

    It may be asynchronous.
    """

    @property
    def chat(self) -> Any:
        """The chat API."""


LLMClient = ChatClient
"""The type of the clients of generators and judges."""


def check_client(client: object) -> None:
    """Raise ``ConfigurationError`` if the client has no ``chat.completions.create``. Sends no request."""
    create: object = client
    for name in ("chat", "completions", "create"):
        create = getattr(create, name, None)
    if isinstance(client, type) or not callable(create):
        raise ConfigurationError(
            f"{preview(repr(client))} is not a chat client: use an object with chat.completions.create, "
            "such as openai.OpenAI()"
        )


def server_of(client: object) -> str:
    """Return host, port and path of the client's ``base_url`` without ``/v1``, or an empty text without one."""
    parts = urlsplit(str(getattr(client, "base_url", "")))
    host = parts.netloc.rpartition("@")[2]
    return host + parts.path.rstrip("/").removesuffix("/v1")


def is_openai(client: object) -> bool:
    """Return whether the client uses OpenAI's own service, whose prices are known."""
    return server_of(client) == DEFAULT_HOST


def without_retries(client: ChatClient) -> ChatClient:
    """Return the client with its own retries turned off, if possible, because we retry ourselves."""
    with_options = getattr(client, "with_options", None)
    changed: ChatClient = with_options(max_retries=0) if callable(with_options) else client
    return changed


def call(client: ChatClient, request: ChatRequest, attempt: int) -> Answer | CallFailure:
    """Return the answer, usable or not, or the failure. The client may be asynchronous."""
    try:
        completion = settled(client.chat.completions.create(**request.arguments(attempt)))
    except Exception as error:
        code = part_of(getattr(error, "body", None), "code")
        if code in REFUSED_TEXTS:
            return Answer(
                content=None,
                refusal=str(code),
                finish_reason="refused",
                input_tokens=0,
                output_tokens=0,
                max_output_tokens=request.max_output_tokens,
            )
        failure = failure_of(error, "the service", str(getattr(client, "api_key", "") or ""), CHECK)
        if failure is None:
            raise
        return failure
    choices = part_of(completion, "choices")
    if not isinstance(choices, list | tuple):
        # Some gateways send errors with the status of a success.
        reason = "the service answered without choices"
        return CallFailure(reason, "check the model and the server's address", may_pass=True, maybe_billed=True)
    return _answer_in(completion, choices[0] if choices else None, request)


def _answer_in(completion: object, choice: object, request: ChatRequest) -> Answer:
    message, usage = part_of(choice, "message"), part_of(completion, "usage")
    content = _text(part_of(message, "content"))
    read, written = part_of(usage, "prompt_tokens"), part_of(usage, "completion_tokens")
    return Answer(
        content=content,
        refusal=_text(part_of(message, "refusal")),
        finish_reason=_text(part_of(choice, "finish_reason")),
        input_tokens=read if type(read) is int and read > 0 else request.input_tokens,
        output_tokens=written if type(written) is int and written >= 0 else count_tokens(content or "", "o200k_base"),
        max_output_tokens=request.max_output_tokens,
    )


def ask_once(client: ChatClient, request: ChatRequest, form: type[M], retries: RetryPolicy, who: str) -> M:
    """Return the answer in its form, without caching it.

    Args:
        client: The client.
        request: The request.
        form: The form of the answer.
        retries: When to retry.
        who: Who is asked, for messages.

    Raises:
        ServiceError: There is no usable answer.
    """
    answer = retries.run(lambda _seconds_left: call(client, request, 0), threading.Event())
    if isinstance(answer, Failure):
        raise ServiceError(f"{who} gave no answer ({answer.reason}): {answer.advice}")
    content = read_answer(answer, form)
    if isinstance(content, UnusableAnswer):
        raise ServiceError(f"{who} gave no answer ({content.fault}, {content.detail}): try another model")
    return content


def _text(value: object) -> str | None:
    # JSON can contain lone surrogates, which files cannot.
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


class ChatService(OpenAIClient):
    """OpenAI, or a server with the same protocol, as a chat client.

    ``base_url`` defaults to ``OPENAI_BASE_URL``, then to OpenAI; the key is ``OPENAI_API_KEY``. It is read at the first
    request, so that estimates and cached work need no key. ``timeout`` limits the silence of a request, in seconds.
    Raises ``ConfigurationError`` on an invalid address or, at the first request, a missing key.
    """

    def __init__(self, base_url: str | None = None, timeout: float = 120.0) -> None:
        super().__init__(base_url, None, timeout)
        # chat.completions.create resolves to this object, so that it connects only when it is called.
        self.chat = self.completions = self

    @property
    def base_url(self) -> str:
        """The server, which determines names and prices."""
        return f"https://{self.server}"

    @property
    def api_key(self) -> str:
        return self._key.get_secret_value()

    def create(self, **arguments: Any) -> Any:
        return self.connect().chat.completions.create(**arguments, timeout=self._timeout)
