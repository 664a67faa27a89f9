"""The settings file: TOML, one key per setting, errors that name key and line.

`headstart.toml` in the working directory, or the file named by HEADSTART_CONFIG.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from settings.suggestions import did_you_mean

VARIABLE: Final = "HEADSTART_CONFIG"
DEFAULT: Final = Path("headstart.toml")


class SettingsFileError(ValueError):
    """The settings file is unreadable or has an unknown key; the message names the line."""


@dataclass(frozen=True)
class SettingsFile:
    """The values of a settings file, and their lines."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, name: str) -> str:
        """Return `FILE, line N` of a setting that the file has."""
        return f"{self.path}, line {self.lines[name]}"


def read_file(known: Collection[str]) -> SettingsFile:
    """Return the settings file, or an empty one if none exists and none was named.

    Raises `SettingsFileError` if it is unreadable, not TOML, or has a key not in `known`.
    """
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else DEFAULT
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not named:
            return SettingsFile()
        raise SettingsFileError(
            f"the settings file {path} does not exist ({VARIABLE} names it)"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"the settings file {path} cannot be read: {error}") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsFileError(f"{path}: {error}") from None
    lines = {name: _line_of(name, text) for name in values}
    for name in values:
        if name not in known:
            raise SettingsFileError(
                f"{path}, line {lines[name]}: there is no setting {name!r}"
                f"{did_you_mean(name, known)}; `headstart config show` lists all"
            )
    return SettingsFile(path, values, lines)


def _line_of(name: str, text: str) -> int:
    """Return the line on which a top-level key is set, from 1.

    The shortest beginning of the file that is TOML and has the key ends with its statement; the
    statement begins after the longest one before it that is TOML without the key.
    """
    lines = text.splitlines()
    before = 0
    for end in range(1, len(lines) + 1):
        try:
            found = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        if name in found:
            break
        before = end
    return before + 1
