"""The files of one import: those that are named, those in folders, and none twice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from replay.files.input import CannotRead, local_file
from replay.importers.agent_runs import Unmapped
from replay.importers.tau_bench import FOLDER, RESULTS

_PACKED: Final = (".gz", ".zst")
_SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".csv")


def sources(given: Iterable[str], unmapped: Unmapped) -> list[Path]:
    """Return the files to read; a file that is named twice is read once, and counted.

    Raises `OSError`, and `CannotRead` for a folder without such files.
    """
    found: dict[tuple[int, int], Path] = {}
    for each in given:
        is_folder = each != "-" and Path(each).is_dir()
        files = _within(Path(each)) if is_folder else [local_file(each)]
        for file in files:
            if is_folder:
                unmapped.optional.add(file)
            about = file.stat()
            key = (about.st_dev, about.st_ino)
            if key in found:
                unmapped.duplicates["files"] += 1
            found.setdefault(key, file)
    return list(found.values())


def _within(folder: Path) -> list[Path]:
    """Return the files of a folder and those below it; of tau2-bench's folders the results.json,
    whose importer reads what is beside it."""
    results = {each.parent for each in folder.rglob(RESULTS)}
    found = [
        each
        for each in sorted(folder.rglob("*"))
        if each.is_file()
        and Path(each.name.removesuffix(".gz").removesuffix(".zst")).suffix in _SUFFIXES
        and not (each.parent.name == FOLDER and each.parent.parent in results)
    ]
    if not found:
        raise CannotRead(f"{folder}: no JSON, JSONL or CSV file is in that folder")
    return found
