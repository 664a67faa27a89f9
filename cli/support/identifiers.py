"""Checks options that name a tenant, an agent, a workflow type or a tool."""

from __future__ import annotations

import typer


def require_one_subject(*names: str | None, whole_tenant: bool) -> None:
    """Raise `typer.BadParameter` unless one of user, session, workflow and tenant is given."""
    if sum(name is not None for name in names) + whole_tenant != 1:
        raise typer.BadParameter(
            "give exactly one of --user, --session, --workflow and --whole-tenant"
        )


def require_names(**options: str | None) -> None:
    """Raise `typer.BadParameter` naming the option that is not an identifier; None: not given."""
    from headstart.events.schema import MAX_IDENTIFIER

    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if not value:
            raise typer.BadParameter("must not be empty; leave it out instead", param_hint=option)
        if len(value) > MAX_IDENTIFIER or any(c in value for c in "\0\x1f"):
            raise typer.BadParameter(
                f"{value!r:.100} must have at most {MAX_IDENTIFIER} characters, without 0x00 and "
                "0x1f",
                param_hint=option,
            )
