"""Describe built-in parts for people, and make JSON schemas of parts for editors."""

import inspect
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from rag_eval.parts.definition import Setting, plain_data, settings_of, type_name
from rag_eval.parts.kinds import Kind, Schema, first_line


class PartDescription(NamedTuple):
    """The description of a built-in type; ``remote`` is yes, no or a condition, ``cost`` the price of using it."""

    name: str
    summary: str
    settings: list[Setting]
    remote: str
    cost: str

    def as_data(self) -> dict[str, Any]:
        """Return the description as plain data, with defaults as in a YAML file."""
        settings = [
            {"name": setting.name, "default": setting.default_text, "description": setting.description}
            for setting in self.settings
        ]
        return self._asdict() | {"settings": settings}


def describe(kind: Kind) -> list[PartDescription]:
    """Describe every built-in type of a kind, in the order of its registry."""
    descriptions = []
    for name in kind.types:
        cls = kind.load(name)
        remote = inspect.getattr_static(cls, "remote", False)
        when = first_line(remote.fget) if isinstance(remote, property) else "yes" if remote else "no"
        cost = getattr(cls, "cost", "nothing")
        descriptions.append(PartDescription(name, kind.summary(cls), list(settings_of(cls).values()), when, cost))
    return descriptions


def kind_schema(kind: Kind, definitions: dict[str, Schema] | None = None) -> Schema:
    """Return the JSON schema of any part of a kind: its name, or its type and settings.

    With ``definitions`` a list in a setting makes a grid, and the schemas are added there and referred to.
    """
    reference = {"$ref": f"#/$defs/{kind.name}"}
    if definitions is not None and kind.name in definitions:
        return reference
    if definitions is not None:
        definitions[kind.name] = {}  # so that it precedes its types
    bare, settings = [], []
    for name in kind.types:
        schema = _type_schema(kind, name, definitions)
        bare += [name] if schema["required"] == ["type"] and name != kind.implied else []
        if definitions is not None:
            definitions[f"{kind.name}.{name}"] = schema
            schema = {"$ref": f"#/$defs/{kind.name}.{name}"}
        settings.append(schema)
    settings += own_schemas() if kind.foreign else []
    either = {"anyOf": [{"title": "name", "enum": bare, "description": "With its default settings."}, *settings]}
    if definitions is None:
        return either
    definitions[kind.name] = either
    return reference


def own_schemas() -> list[Schema]:
    """Return the schemas of a user's part: its ``module:Name``, alone or with settings."""
    name = {"type": "string", "pattern": r"^\w+(\.\w+)*:\w+(\.\w+)*$"}
    settings = {"type": "object", "properties": {"type": name}, "required": ["type"]}
    described = {"title": "your own", "description": "module:Name of a class, a function or an object."}
    return [described | name, described | settings]


def one_or_more(item: Schema, more: Schema | None = None) -> Schema:
    """Return the schema of an item or a list of at least one item."""
    return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1} | (more or {})]}


def _type_schema(kind: Kind, name: str, definitions: dict[str, Schema] | None) -> Schema:
    cls = kind.load(name)
    settings = settings_of(cls)
    properties: dict[str, Schema] = {"type": {"const": name, "title": "type"}}
    for key, setting in settings.items():
        item = kind_schema(setting.kind, definitions) if setting.is_part else _setting_schema(setting)
        described: Schema = {"description": setting.description, "title": key}
        if setting.default is not None and not setting.is_required:
            described["default"] = _default(setting)
        properties[key] = described | (item if definitions is None else one_or_more(item))
    required = [key for key, setting in settings.items() if setting.is_required]
    return {
        "title": name,
        "description": kind.summary(cls),
        "type": "object",
        "properties": properties,
        "required": required if name == kind.implied else ["type", *required],
        "additionalProperties": False,
    }


def _default(setting: Setting) -> object:
    if setting.is_part:
        return type_name(setting.default)
    if setting.kind is not None and isinstance(setting.default, list):
        return [type_name(item) for item in setting.default]
    return plain_data(setting.default)


def _setting_schema(setting: Setting) -> Schema:
    schema = TypeAdapter(setting.type).json_schema()
    models = schema.pop("$defs", {})
    bare = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
    return dict(_without_references(bare, models))


def _without_references(schema: Any, models: dict[str, Schema]) -> Any:
    """Inline the models inside a setting: their definitions are not in the whole schema."""
    if isinstance(schema, list):
        return [_without_references(item, models) for item in schema]
    if not isinstance(schema, dict):
        return schema
    model = models.get(str(schema.get("$ref")).removeprefix("#/$defs/"), {})
    whole = model | {key: value for key, value in schema.items() if key != "$ref"} if model else schema
    return {key: _without_references(value, models) for key, value in whole.items()}
