"""`headstart backup`: saves a whole system to a folder, and restores it into an empty one."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.option_groups import CommandGroup
from cli.support.options import Json, KafkaPostgresOptions, PostgresOptions
from cli.support.output import claim_outputs, counted, echo, show_json

if TYPE_CHECKING:
    from replay.backup.manifest import Manifest
    from replay.backup.restore import RestoreResult

app = CommandGroup(help="Backups of the whole system: create, verify, restore, purges.")

From = Annotated[
    Path, typer.Option("--from", metavar="FOLDER", help="A folder of `headstart backup create`.")
]


@app.command("create")
def create(
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder to write it to.")],
    wait: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for Postgres to catch up.")
    ] = 60.0,
    *,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Write a consistent backup of a running system to a new folder.

    It holds all tables of Postgres in one snapshot, what was learned, shared models, overrides and
    modes, and the end of headstart.events that is not learned from yet. Workers and executors go
    on meanwhile. The folder appears when it is whole; its files are readable by you only.

    Examples: headstart backup create --to backups/monday;
    headstart backup create --to backups/monday --json
    """
    from importlib.metadata import version

    from replay.backup.create import BackupSource, create_backup

    settings = options.read()
    begun = time.monotonic()
    source = BackupSource(settings.kafka, settings.postgres, version("headstart-service"))
    manifest = asyncio.run(create_backup(source, to, echo, wait))
    found = {"folder": str(to), **_described(manifest), "seconds": _since(begun)}
    echo(f"{to}: {_counts(manifest)}, in {found['seconds']:.1f} s")
    if json:
        show_json(found)


@app.command("verify")
def verify(folder: From, json: Json = False) -> None:
    """Check that a backup is whole and unchanged: manifest, sizes, SHA-256 and counts.

    Needs no service. Exit code 1: damaged; the line names the file.

    Example: headstart backup verify --from backups/monday
    """
    from replay.backup.check import check_backup

    begun = time.monotonic()
    manifest = check_backup(folder, echo)
    echo(f"{folder} is whole: {_counts(manifest)}")
    if json:
        show_json({"folder": str(folder), **_described(manifest), "seconds": _since(begun)})


@app.command("restore")
def restore(
    folder: From,
    purges: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The newest file of `headstart backup purges`."),
    ] = None,
    no_later_purges: Annotated[
        bool,
        typer.Option("--no-later-purges", help="Nothing was purged after the backup."),
    ] = False,
    *,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Restore a backup into an empty system in which no worker and no executor runs.

    Create the topics with the backup's number of partitions first (`headstart topics create` or
    `headstart up --no-workers`), and start workers afterwards. If the broker still has the log of
    the backup, only Postgres is restored, and the workers store again what it lacks. Otherwise
    name the purges after the backup: they are applied again. If interrupted, run it again.

    Examples: headstart backup restore --from backups/monday --no-later-purges;
    headstart backup restore --from backups/monday --purges purges.jsonl --json
    """
    from replay.backup.purge_list import read_purge_list
    from replay.backup.restore import RestoreTarget, restore_backup
    from settings import operators_key

    if purges is not None and no_later_purges:
        raise typer.BadParameter("give --purges or --no-later-purges, not both")
    settings = options.read()
    later = () if no_later_purges else None
    known = later if purges is None else read_purge_list(purges)
    target = RestoreTarget(settings.kafka, settings.postgres, operators_key(settings))
    result = asyncio.run(restore_backup(folder, target, known, echo))
    for line in _restored(result):
        echo(line)
    if json:
        import msgspec

        show_json(msgspec.to_builtins(result))


@app.command("purges")
def list_purges(
    file: Annotated[str, typer.Argument(help="Where to write it; -: standard output.")],
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Write what was purged to FILE, for `headstart backup restore --purges FILE`.

    A backup knows the purges of before. Write the list again after each purge, and keep it where
    the loss of the system does not reach it.

    Example: headstart backup purges purges.jsonl
    """
    from replay.backup.purge_list import save_purges

    claim_outputs(file, json=json)
    settings = options.read()
    count = asyncio.run(save_purges(settings.postgres, file))
    if json:
        show_json({"file": file, "purges": count})
    else:
        echo(f"{counted(count, 'purge')} written to {file}")


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)


def _described(manifest: Manifest) -> dict[str, Any]:
    tables = {each.table: each.entries for each in manifest.of_kind("table")}
    return {
        "id": manifest.id,
        "created": manifest.created,
        "version": manifest.version,
        "epoch": manifest.epoch,
        "partitions": manifest.partitions,
        "bytes": sum(each.bytes for each in manifest.files),
        "tables": tables,
        "learned_rows": manifest.count("rows"),
        "log_records": manifest.count("events"),
        "models": manifest.count("models"),
        "commands": manifest.count("commands"),
    }


def _counts(manifest: Manifest) -> str:
    events = manifest.rows_of("episodic_events")
    return (
        f"{counted(events, 'event')}, {counted(manifest.count('rows'), 'learned row')}, "
        f"{counted(manifest.count('events'), 'record')} of the log behind them"
    )


def _restored(result: RestoreResult) -> list[str]:
    if result.already:
        return [f"backup {result.backup} is restored here already; nothing was changed"]
    lines = [f"restored {sum(result.rows.values()):,} rows in Postgres"]
    if result.same_log:
        lines[0] += f"; workers store again what log epoch {result.epoch} has after them"
    else:
        lines.append(
            f"{counted(result.contexts, 'context')} go on in log epoch {result.epoch}; workers "
            f"apply {counted(result.again, 'record')} and {counted(result.purges, 'purge')} of "
            "the saved end of the log. What was sent after the backup is lost, except what "
            "executors' spools still have"
        )
    for number, count in result.lost.items():
        lines.append(
            f"warning: {counted(count, 'record')} of partition {number} are lost: retention "
            "deleted them, and the backup is older"
        )
    if keys := result.rows.get("tenant_keys"):
        lines.append(
            f"{counted(keys, 'data key')} of tenants are as the backup has them: before workers "
            "start, shred again those that were shredded since (`headstart memory keys shred`)"
        )
    return [*lines, f"in {result.seconds:.1f} s; start the workers, then `headstart verify`"]
