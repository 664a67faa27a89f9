"""Options that several commands share, as one parameter: a dataclass whose fields are options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, get_args, get_type_hints

import typer

from cli.support.finite_options import FiniteCommand

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class OptionGroup:
    """Base of the groups. A field is an option; one without a default is required."""


class Only:
    """Selects fields of a group: `Annotated[Group, Only("a", "b")]`; the others keep defaults."""

    def __init__(self, *names: str) -> None:
        self.names = names


class CommandGroup(typer.Typer):
    """A Typer group whose commands may take option groups; without arguments it shows its help."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"no_args_is_help": True} | more)

    def command(self, name: str | None = None, **more: Any) -> Callable[[F], F]:
        """Register a command, as Typer's method does."""
        register = super().command(name, **{"cls": FiniteCommand} | more)

        def add(command: F) -> F:
            register(expand_options(command))
            return command

        return add


def expand_options(command: Callable[..., T]) -> Callable[..., T]:
    """Return the command with each grouped parameter replaced by its options, for Typer."""
    parameters: list[Parameter] = []
    groups: dict[str, tuple[type[OptionGroup], list[str]]] = {}
    for parameter in signature(command, eval_str=True).parameters.values():
        kind, *extras = get_args(parameter.annotation) or (parameter.annotation,)
        if not (isinstance(kind, type) and issubclass(kind, OptionGroup)):
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        options = list(_options(kind, extras))
        groups[parameter.name] = kind, [each.name for each in options]
        parameters += options

    @wraps(command)
    def run(**given: Any) -> T:
        for name, (kind, names) in groups.items():
            given[name] = kind(**{each: given.pop(each) for each in names if each in given})
        return command(**given)

    run.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _options(kind: type[OptionGroup], extras: list[Any]) -> Iterator[Parameter]:
    """Yield the fields that the annotation selects as parameters of a command."""
    hints = get_type_hints(kind, include_extras=True)
    selected = next((each.names for each in extras if isinstance(each, Only)), None)
    for each in fields(kind):
        if selected is None or each.name in selected:
            default = Parameter.empty if each.default is MISSING else each.default
            yield Parameter(
                each.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[each.name]
            )
