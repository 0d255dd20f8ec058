"""A request for a chat completion and its answer, as plain values: what is cached, counted and paid."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from rag_eval.digests import data_sha256
from rag_eval.tokens import count_tokens

# What a chat format adds to a message; the exact figure is the service's secret.
TOKENS_AROUND_A_MESSAGE = 8


@dataclass(frozen=True)
class ChatRequest:
    """What is sent, and to whom: ``server`` keeps apart equal names of models on different servers.

    ``settings`` go along as they are, such as a temperature. ``max_output_tokens`` is sent where it is given; it is no
    part of the digest, because an answer within the limit would have been the same without.
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
        """The messages in the form of the API."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]

    def arguments(self, attempt: int) -> dict[str, Any]:
        """The keyword arguments for ``chat.completions.create``."""
        sent: dict[str, Any] = {
            "model": self.model,
            "messages": self.messages,
            "response_format": dict(self.response_format),
            **self._settings(attempt),
        }
        return sent if self.max_output_tokens is None else {**sent, "max_completion_tokens": self.max_output_tokens}

    def digest(self, attempt: int) -> str:
        """The sha256, in hex, of all that decides the answer to this attempt."""
        shape = dict(self.response_format)
        parts = [self.server, self.model, self.messages, shape, self._settings(attempt), attempt]
        return data_sha256(["chat", 1, *parts])

    @cached_property
    def input_tokens(self) -> int:
        """About how many tokens the model reads, by ``o200k_base``."""
        texts = (self.system, self.user, json.dumps(dict(self.response_format)))
        return sum(count_tokens(text, "o200k_base") + TOKENS_AROUND_A_MESSAGE for text in texts)

    def _settings(self, attempt: int) -> dict[str, float | int]:
        # With one seed the model would repeat the answer that could not be used.
        return {name: value + attempt if name == "seed" else value for name, value in self.settings.items()}


class Answer(BaseModel):
    """What came back, good or bad; tokens as the service counts them, by ``o200k_base`` where it does not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    content: str | None
    refusal: str | None
    finish_reason: str | None
    input_tokens: int
    output_tokens: int
    max_output_tokens: int | None = None
    """The limit that was sent along."""

    def serves(self, max_output_tokens: int | None) -> bool:
        """Whether it would be the answer under this limit too: one that was cut says nothing about a higher limit."""
        if self.finish_reason != "length" or self.max_output_tokens is None:
            return True
        return max_output_tokens is not None and max_output_tokens <= self.max_output_tokens
