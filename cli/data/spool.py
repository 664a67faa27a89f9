"""`headstart spool`: the events that emitters have spooled on this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.option_groups import CommandGroup
from cli.support.options import Json, Yes
from cli.support.output import FAILURE, confirm, counted, echo, show_json

if TYPE_CHECKING:
    from headstart.spool.purging import SpoolPurge

app = CommandGroup(help="The events that emitters have spooled on this host: purge a subject's.")


@app.callback()
def spool() -> None:
    """The events that emitters have spooled on this host: purge a subject's."""


@app.command("purge")
def purge(
    tenant: Annotated[str, typer.Option(help="The tenant.")],
    user: Annotated[str | None, typer.Option(help="Events of this user of the tenant.")] = None,
    session: Annotated[str | None, typer.Option(help="Events of this session.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Events of this workflow id.")] = None,
    whole_tenant: Annotated[
        bool, typer.Option("--whole-tenant", help="Events of all users of the tenant.")
    ] = False,
    spool: Annotated[
        Path | None,
        typer.Option(help="Directory of spools.  [default: HEADSTART_SPOOL, else your own]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would go, and change nothing.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait until no process ships the directory.")
    ] = 5.0,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove a subject's events from the files of this host's spools and their quarantine.

    For after `headstart memory purge` of the same subject, on each host with executors. Stop the
    executors and the shipper first: spools of running processes are left as they are. Events
    without a user go with the user's runs. A file is replaced as a whole, so kill -9 leaves the old
    or the new one; run it again. Exit code 1: something is left, and stderr says what.

    Examples: headstart spool purge --tenant acme --user u7 --dry-run;
    headstart spool purge --tenant acme --user u7 --spool /var/lib/headstart --yes --json
    """
    from cli.support.identifiers import require_names, require_one_subject
    from headstart.spool.layout import default_directory
    from headstart.spool.purged_events import SpoolSubject
    from headstart.spool.purging import purge_spools

    require_names(tenant=tenant, user=user, session=session, workflow=workflow)
    require_one_subject(user, session, workflow, whole_tenant=whole_tenant)
    directory = spool or default_directory()
    if not directory.is_dir():
        raise typer.BadParameter(f"there is no directory {directory}", param_hint="--spool")
    subject = SpoolSubject(tenant, user, session, workflow, whole_tenant)
    if not dry_run:
        confirm(f"Remove the events of {subject} from {directory}? This cannot be undone.", yes)
    found = purge_spools(directory, subject, dry_run=dry_run, timeout_s=timeout)
    if json:
        named = {"tenant": tenant, **subject.names}
        fields = found._asdict() | {"directory": str(directory), "subject": named}
        show_json(fields | {"dry_run": dry_run})
    _say(found, dry_run=dry_run)
    if not found.complete:
        raise typer.Exit(FAILURE)


def _say(found: SpoolPurge, *, dry_run: bool) -> None:
    verb = "would be removed" if dry_run else "removed"
    echo(f"{verb}: {counted(found.removed, 'event')} from {counted(found.rewritten, 'file')}")
    if found.in_use:
        echo(
            f"error: processes still write {counted(len(found.in_use), 'spool')}, which are as "
            f"they were ({', '.join(found.in_use)}): stop them, and run this again"
        )
    for name in found.unreadable:
        echo(f"error: {name} has damage that names the subject: delete it")
