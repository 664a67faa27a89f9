"""The list of purges that is kept beside backups, because an older backup does not know them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import orjson

from replay.backup.manifest import UnusableBackup
from replay.files.input import read_input
from replay.files.output import Target, write_file
from sinks.postgres.purges import read_purges
from sinks.postgres.reading import reading_postgres
from topics.control.messages import Purge

_FORMAT: Final = "headstart-purges"


async def save_purges(postgres: str, file: Target) -> int:
    """Write the purges that the database knows; return how many. Raises as services and files."""
    async with reading_postgres(postgres) as connection:
        found = [each.purge for each in await read_purges(connection)]
    header = {"format": _FORMAT, "version": 1, "purges": len(found)}
    lines = [orjson.dumps(header), *map(msgspec.json.encode, found)]
    write_file(file, b"".join(line + b"\n" for line in lines))
    return len(found)


def read_purge_list(file: Path) -> Sequence[Purge]:
    """Return the purges of a list. Raises `UnusableBackup`, `CannotRead` and `OSError`."""
    first, *lines = read_input(file).splitlines() or [b""]
    try:
        header = orjson.loads(first)
        whole = header["format"] == _FORMAT and header["purges"] == len(lines)
        found = [msgspec.json.decode(line, type=Purge) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise UnusableBackup(
            f"{file}: not a list of `headstart backup purges` ({error})"
        ) from error
    if not whole:
        raise UnusableBackup(f"{file}: not a whole list of `headstart backup purges`")
    return found
