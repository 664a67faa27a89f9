"""The options that name one context, and a note where its workflow type is unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.identifiers import require_names
from cli.support.option_groups import OptionGroup
from cli.support.options import Tenant
from cli.support.unknown_names import notes_on_names

if TYPE_CHECKING:
    from settings import Settings

_Further = Annotated[
    list[str] | None,
    typer.Option("--context", metavar="KEY=VALUE", help="Any other level; repeatable."),
]


@dataclass(frozen=True)
class ContextOptions(OptionGroup):
    """A context: its tenant, workflow type and levels."""

    workflow_type: Annotated[str, typer.Option(help="The context's workflow type.")]
    domain: Annotated[str | None, typer.Option(help="Its domain [default: every domain].")] = None
    user: Annotated[str | None, typer.Option(help="Its user id [default: every user].")] = None
    context: _Further = None
    tenant: Tenant = "default"

    def path(self, settings: Settings) -> str:
        """Return the context's path, "" for the whole workflow type.

        Raises `typer.BadParameter` for a level that this system does not have, or given twice.
        """
        from headstart.keys import context_paths
        from settings.suggestions import did_you_mean

        require_names(tenant=self.tenant, workflow_type=self.workflow_type)
        given = {"domain": self.domain, "user_id": self.user}
        for text in self.context or ():
            key, found, value = text.partition("=")
            if not found:
                raise typer.BadParameter(f"--context {text!r} is not KEY=VALUE")
            if given.get(key) is not None:
                raise typer.BadParameter(
                    f"the level {key!r} is given twice: {given[key]!r} and {value!r}"
                )
            given[key] = value
        for key, each in given.items():
            if each is not None and key not in settings.levels:
                raise typer.BadParameter(
                    f"{key!r} is no level of this system's contexts: {', '.join(settings.levels)} "
                    f"(HEADSTART_LEVELS){did_you_mean(key, settings.levels)}"
                )
        paths = context_paths(self.workflow_type, given.get, settings.levels)
        return paths[-1] if len(paths) > 1 else ""

    def notes(self, settings: Settings) -> list[str]:
        """Return a note if nothing was learned for the tenant or workflow type: a possible typo."""
        return notes_on_names(settings, self.tenant, self.workflow_type)
