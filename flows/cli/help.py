"""How ``--help`` looks: commands by what they are for, and switches without the name of a type."""

from typing import Any

from typer.core import TyperGroup

EVALUATE = "Evaluate"
LOOK = "What there is to choose from"
KEEP = "Every day"


class Commands(TyperGroup):
    """The commands of an app, whose help shows ``--json`` where typer would show ``--json <bool>``."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _name_no_types_of_switches(command, ctx)
        return command

    def get_params(self, ctx: Any) -> Any:
        """The app's own options."""
        return _without_types(super().get_params(ctx))


def _name_no_types_of_switches(command: Any, ctx: Any) -> None:
    _without_types(command.get_params(ctx))
    for inner in getattr(command, "commands", {}).values():
        _name_no_types_of_switches(inner, ctx)


def _without_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
