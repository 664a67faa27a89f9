"""The examples in the help of every command, taken apart."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from cli.main import whole


def commands() -> dict[tuple[str, ...], Any]:
    """Every command that does something, by its words."""

    def walk(command: Any, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        children = getattr(command, "commands", None)
        if children is None:
            yield name, command
            return
        for child, sub in children.items():
            yield from walk(sub, (*name, child))

    return dict(walk(whole(), ()))


def examples(command: Any) -> list[list[str]]:
    """The examples in a command's help, as words after `headstart`; without what is piped."""
    _, _, text = (command.help or "").partition("Example")
    text = " ".join(text.removeprefix("s").removeprefix(":").split())
    found = []
    for part in re.split(r"; |, then |, where ", text):
        if began := re.match(r"(cat \S+ \| )?headstart ", part):
            line = re.split(r" \| | > | && ", part[began.end() :])[0].rstrip(".")
            found.append(shlex.split(line.replace('"$DSN"', "postgresql://h/headstart")))
    return found
