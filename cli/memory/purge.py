"""`headstart memory purge`: erases a user, a session or a workflow everywhere, with a receipt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.support.options import Json, KafkaPostgresOptions, Yes
from cli.support.output import FAILURE, confirm, counted, echo, require_found, show_json, show_table
from cli.support.times import iso_moment, now_ms

if TYPE_CHECKING:
    from replay.purge.remains import PurgeReceipt
    from replay.purge.run import PurgePreview, PurgeResult, PurgeServices
    from settings import Settings
    from topics.control.messages import Purge

WAIT_S: Final = 60.0
DryRun = Annotated[bool, typer.Option("--dry-run", help="Report the effect, and send nothing.")]
Vacuum = Annotated[
    bool,
    typer.Option("--vacuum", help="Also vacuum the tables in Postgres, which frees deleted rows."),
]
VacuumFull = Annotated[
    bool,
    typer.Option(
        "--vacuum-full",
        help="Write these tables anew, each locked meanwhile, so that no byte is left.",
    ),
]
Wait = Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the workers.")]


def purge(
    tenant: Annotated[str | None, typer.Option(help="The tenant.")] = None,
    user: Annotated[str | None, typer.Option(help="Everything of this user of the tenant.")] = None,
    session: Annotated[str | None, typer.Option(help="Everything of this session.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Everything of this workflow id.")] = None,
    whole_tenant: Annotated[
        bool, typer.Option("--whole-tenant", help="Everything of all users of the tenant.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="List purges, and what remains of each.")
    ] = False,
    vacuum: Vacuum = False,
    vacuum_full: VacuumFull = False,
    dry_run: DryRun = False,
    wait: Wait = WAIT_S,
    yes: Yes = False,
    *,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Erase everything of a user, a session, a workflow, or a whole tenant.

    A control record in every partition of headstart.events, signed if HEADSTART_OPERATORS_KEY is
    set, covers the events before it, and later ones that are older than the purge. Events,
    episodes, vectors, retrievals, profiles and the subject's contexts are deleted; rebuilds,
    backtests and exports leave out what the topic still has. HNSW indexes of which over 5 % is
    deleted then are built anew. If interrupted, run it again. `--status` shows what remains, where
    and until when; `headstart verify --purged` checks it. Exit code 1: nothing matches, or workers
    have not carried it out within --wait seconds.

    Examples: headstart memory purge --tenant acme --user u7 --dry-run; headstart memory purge
    --tenant acme --user u7 --yes --json; headstart memory purge --status --tenant acme
    """
    from cli.support.identifiers import require_names, require_one_subject

    require_names(tenant=tenant, user=user, session=session, workflow=workflow)
    settings = options.read()
    if status:
        if whole_tenant or any(each is not None for each in (user, session, workflow)):
            raise typer.BadParameter("--status lists all purges; give only --tenant with it")
        _status(settings, tenant, json=json)
        return
    if tenant is None:
        raise typer.BadParameter("give the tenant, and what of it to erase", param_hint="--tenant")
    require_one_subject(user, session, workflow, whole_tenant=whole_tenant)
    purging = Purging(
        purge_services(settings), _new_purge(tenant, user, session, workflow),
        dry_run=dry_run, yes=yes, wait=wait, vacuum=vacuum, full=vacuum_full,
    )  # fmt: skip
    asyncio.run(purging.run(json=json))


def _new_purge(tenant: str, user: str | None, session: str | None, workflow: str | None) -> Purge:
    from headstart.events.schema import new_id
    from topics.control.messages import Purge

    now = now_ms()
    whole = user is session is workflow is None
    return Purge(new_id(now), now, tenant, user, session, workflow, whole)


def purge_services(settings: Settings) -> PurgeServices:
    """Return where a purge is carried out, with the operators' key."""
    from replay.purge.run import PurgeServices
    from settings import operators_key

    return PurgeServices(
        settings.kafka, settings.postgres, operators_key(settings), settings.deletion_marks_s
    )


class Purging:
    """One purge from the question to the receipt."""

    def __init__(
        self, services: PurgeServices, purge: Purge, *, dry_run: bool, yes: bool, wait: float,
        vacuum: bool, full: bool = False,
    ) -> None:  # fmt: skip
        self._services, self._purge = services, purge
        self._dry_run, self._yes, self._wait = dry_run, yes, wait
        self._vacuum, self._full = vacuum or full, full

    async def run(self, *, json: bool) -> None:
        """Look up what it covers, ask, carry it out and show the receipt."""
        from replay.purge.run import carry_out, look_up_purge
        from topics.control.purges import subject_name

        self._purge, preview = await look_up_purge(self._services, self._purge)
        field, value = subject_name(self._purge)
        found: dict[str, Any] = {
            "id": self._purge.id, "tenant": self._purge.tenant, "subject": {field: value},
            "found": _fields(preview), "sent": False,
        }  # fmt: skip
        what = f"{field} {value!r} of tenant {self._purge.tenant!r}"
        echo(f"{what}: {_described(preview)}")
        if self._dry_run:
            if json:
                show_json(found)
            _require(preview, field, value)
            return
        if preview.empty:
            echo("nothing is stored of it; the purge still keeps out what arrives later")
        confirm(f"Erase everything of {what}? This cannot be undone.", self._yes)
        result = await carry_out(self._services, self._purge, echo, self._wait, preview.records)
        found.update(_result(result), sent=True)
        await self._reclaim()
        found["remains"] = (await _receipt(self._services, self._purge))["remains"]
        self._show(found, result, json=json)

    async def _reclaim(self) -> None:
        from sinks.postgres.reading import reading_postgres
        from sinks.postgres.reclaiming import maintain_indexes, reclaim

        async with reading_postgres(self._services.postgres) as connection:
            if self._vacuum:
                await reclaim(connection, echo, full=self._full)
            else:
                await maintain_indexes(connection, echo)

    def _show(self, found: dict[str, Any], result: PurgeResult, *, json: bool) -> None:
        if json:
            show_json(found)
        else:
            show_table(("table", "deleted rows"), sorted(result.rows.items()))
            _show_remains(found["remains"])
        if result.waiting:
            groups = ", ".join(sorted(result.waiting))
            echo(
                f"error: sent, but {groups} have not come to it within {self._wait:.0f} s; they "
                "carry it out when they run: `headstart status`, `headstart memory purge --status`"
            )
            raise typer.Exit(FAILURE)


async def _receipt(services: PurgeServices, purge: Purge) -> dict[str, Any]:
    from replay.purge.remains import as_json, receipts

    found = [each for each in await receipts(services, purge.tenant) if each.id == purge.id]
    return as_json(found[0]) if found else {"remains": []}


def _fields(preview: PurgePreview) -> dict[str, int]:
    return {
        "events": preview.events, "episodes": preview.episodes, "contexts": preview.contexts,
        "open_runs": preview.open_runs, "retrievals": preview.retrievals,
    }  # fmt: skip


def _described(preview: PurgePreview) -> str:
    parts = [
        counted(preview.events, "event"),
        counted(preview.episodes, "episode"),
        counted(preview.contexts, "context"),
        counted(preview.retrievals, "logged retrieval"),
    ]
    more = f", {counted(preview.open_runs, 'run')} with events that name no user"
    return ", ".join(parts) + (more if preview.open_runs else "")


def _result(result: PurgeResult) -> dict[str, Any]:
    return {
        "at": result.at, "epoch": result.epoch, "offsets": result.offsets, "rows": result.rows,
        "seconds": result.seconds, "applied": not result.waiting, "waiting": result.waiting,
    }  # fmt: skip


def _require(preview: PurgePreview, field: str, value: str) -> None:
    filters: dict[str, Any] = {field: value}
    require_found(
        0 if preview.empty else 1, "event, episode, context or logged retrieval", **filters
    )


def _status(settings: Settings, tenant: str | None, *, json: bool) -> None:
    from replay.purge.remains import as_json, receipts

    found = asyncio.run(receipts(purge_services(settings), tenant))
    if json:
        show_json({"purges": [as_json(each) for each in found]})
    else:
        columns = ("at", "tenant", "subject", "deleted rows", "state")
        show_table(columns, [_row(each) for each in found])
        for each in found[-1:]:
            _show_remains(as_json(each)["remains"])
    require_found(len(found), "purge", tenant=tenant)


def _row(receipt: PurgeReceipt) -> list[object]:
    state = "complete" if receipt.applied and not receipt.left else "waits for workers"
    if receipt.applied and receipt.left:
        state = f"rows are left: {receipt.left}"
    ((field, value),) = receipt.subject.items()
    deleted = sum(receipt.rows.values())
    return [iso_moment(receipt.at), receipt.tenant, f"{field}={value}", f"{deleted:,}", state]


def _show_remains(remains: list[dict[str, Any]]) -> None:
    rows = []
    for each in remains:
        until = "" if each["until"] is None else iso_moment(each["until"])
        rows.append((each["where"], until, each["what"]))
    echo("what may still have bytes of it:")
    show_table(("where", "until", "what"), rows)
