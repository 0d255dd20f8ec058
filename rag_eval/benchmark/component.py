"""A part of a configuration by its settings."""

import json
import re
from typing import ClassVar, Literal, Self

from rag_eval.parts.settings import Settings

_PLAIN = re.compile(r"[A-Za-z0-9._/:@+-]+")


class Component(Settings):
    """A part of a configuration, chosen by its ``type``; ``label`` tells it from every other with other settings."""

    running: ClassVar[tuple[str, ...]] = ()
    """The settings that decide how the work goes and never what comes out: no part of a cache key."""

    searching: ClassVar[tuple[str, ...]] = ()
    """The settings that decide what is found in an index, and not the index."""

    always_shown: ClassVar[tuple[str, ...]] = ()
    """The settings that the label holds even where they are the default."""

    type: str

    @property
    def label(self) -> str:
        """The type, the settings that are always shown, and every other that is not the default."""
        sizes = "/".join(shown(getattr(self, name)) for name in self.always_shown)
        others = [
            f"{name}={shown(getattr(self, name))}"
            for name, field in type(self).model_fields.items()
            if name != "type" and name not in self.always_shown and getattr(self, name) != field.default
        ]
        return " ".join([self.type, *([sizes] if sizes else []), *others])

    def without(self, aspect: Literal["running", "searching"]) -> Self:
        """The same with every setting of this aspect at its default, in the parts inside it too."""
        settled: dict[str, object] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name in getattr(self, aspect):
                settled[name] = field.default
            elif isinstance(value, Component):
                settled[name] = value.without(aspect)
        return self.model_copy(update=settled)

    @property
    def identity(self) -> str | None:
        """What beside the settings decides the result, such as the version of a model; None where nothing does."""
        return None

    @property
    def remote(self) -> bool:
        """Whether it uses the network."""
        return False

    def check(self) -> None:
        """Raise ``ConfigurationError`` on settings that contradict each other; loads nothing and asks no service."""


def shown(value: object) -> str:
    """A setting in a label: different values are written differently, and nothing in one can be taken for an end."""
    if isinstance(value, Component):
        return f"({value.label})"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
