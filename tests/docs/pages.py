"""The pages of the documentation, their blocks and code spans, for the tests beside this module."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.main import whole

ROOT = Path(__file__).parents[2]
FILES = sorted(
    {
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        ROOT / "client" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    }
)
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in FILES}
BLOCK = re.compile(r"(?ms)^```(\w*)\n(.*?)^```")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Yield (file, text) of each block of code in a language."""
    for name, text in TEXTS.items():
        for found in BLOCK.finditer(text):
            if found[1] == language:
                yield name, found[2]


def prose(name: str) -> str:
    """Return a page without its blocks of code."""
    return BLOCK.sub("", TEXTS[name])


def spans(name: str) -> set[str]:
    """Return the code spans of a page, each on one line."""
    found = re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(name))
    return {" ".join(span.replace("\\|", "|").split()) for span in found}


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Yield (file, arguments) of each command line of ours in a block."""
    for name, text in blocks(""):
        for line in text.replace("\\\n", " ").splitlines():
            words = line.strip().removeprefix(".venv/bin/").removeprefix("$ ")
            if words.startswith("headstart "):
                yield name, shlex.split(words, comments=True)[1:]


def command_spans() -> Iterator[tuple[str, list[str]]]:
    """Yield (file, arguments) of each command of ours in a code span."""
    for name in TEXTS:
        for span in sorted(spans(name)):
            line = span.removeprefix(".venv/bin/")
            if line.startswith("headstart ") and ">" not in line:
                words = shlex.split(line.split(" | ")[0])[1:]
                yield name, words


def check_command(name: str, words: list[str]) -> None:
    """Assert that a command and its options exist; of "a|b" each has to."""
    command: Any = whole()
    words = [word for word in words if not re.match(r"[<>|&]", word)]
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        choices = words.pop(0).split("|")
        assert set(choices) <= set(command.commands), f"{name}: {choices}"
        command = command.commands[choices[0]]
    options = {each for param in command.params for each in (*param.opts, *param.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
    known_to_all = {"--help", "--version", "--install-completion", "--show-completion"}
    assert given <= options | known_to_all, f"{name}: {given - options}"
