"""The options that name one context, and a note where its workflow type is unknown."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.option_groups import OptionGroup
from cli.support.options import Tenant
from cli.support.output import say

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

        Raises `typer.BadParameter` for a level that this system does not have.
        """
        from headstart.keys import context_paths
        from settings.suggestions import did_you_mean

        given = {"domain": self.domain, "user_id": self.user}
        for text in self.context or ():
            key, found, value = text.partition("=")
            if not found:
                raise typer.BadParameter(f"--context {text!r} is not KEY=VALUE")
            given[key] = value
        for key, each in given.items():
            if each is not None and key not in settings.levels:
                raise typer.BadParameter(
                    f"{key!r} is no level of this system's contexts: {', '.join(settings.levels)} "
                    f"(HEADSTART_LEVELS){did_you_mean(key, settings.levels)}"
                )
        paths = context_paths(self.workflow_type, given.get, settings.levels)
        return paths[-1] if len(paths) > 1 else ""

    def note_unknown(self, settings: Settings) -> None:
        """Print a note where nothing was learned for the workflow type: it may be a typo."""
        from settings.suggestions import did_you_mean
        from sinks.redis.queries import served_workflow_types

        try:
            known = asyncio.run(served_workflow_types(settings.redis, self.tenant))
        except ConnectionError:
            return
        if self.workflow_type not in known:
            say(
                f"note: nothing is learned yet for the workflow type {self.workflow_type!r} of "
                f"{self.tenant!r}{did_you_mean(self.workflow_type, known)}"
            )
