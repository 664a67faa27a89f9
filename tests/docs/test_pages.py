"""The pages are true: the reference is the code's, commands are commands, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import whole
from docs.generate import FOLDER, PAGES, page

ROOT = Path(__file__).parents[2]
FILES = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")})
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in FILES}


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text() == page(name), "run `make docs`"


def test_nothing_else_lies_in_the_reference() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*PAGES, "log-events.md"}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """(file, text) of each block of code."""
    for name, text in TEXTS.items():
        for found in re.finditer(r"(?ms)^```(\w*)\n(.*?)^```", text):
            if found[1] == language:
                yield name, found[2]


def commands() -> Iterator[tuple[str, list[str]]]:
    """(file, arguments) of each command line of ours."""
    for name, text in blocks(""):
        for line in text.replace("\\\n", " ").splitlines():
            words = line.strip().removeprefix(".venv/bin/").removeprefix("$ ")
            if words.startswith("headstart "):
                yield name, shlex.split(words, comments=True)[1:]


COMMANDS = list(commands())


@pytest.mark.parametrize(
    ("name", "words"),
    COMMANDS,
    ids=lambda each: " ".join(each)[:60] if isinstance(each, list) else "",
)
def test_a_command_in_the_docs_is_one(name: str, words: list[str]) -> None:
    command: Any = whole()
    words = [word for word in words if not re.match(r"[<>|&]", word)]
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, f"{name}: headstart {' '.join(words)}"
        command = command.commands[words.pop(0)]
    options = {each for param in command.params for each in (*param.opts, *param.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= options | {"--help"}, f"{name}: {given - options}"


def test_the_docs_have_commands() -> None:
    assert len(COMMANDS) > 50, "this suite sees none"


@pytest.mark.parametrize(
    ("name", "text"), list(blocks("python")), ids=lambda each: each[:30].strip()
)
def test_python_in_the_docs_is_python(name: str, text: str) -> None:
    # A block may be the inside of a coroutine.
    body = "".join(f"    {line}\n" for line in text.splitlines())
    compile(f"async def block():\n{body}", name, "exec")


def anchors(text: str) -> set[str]:
    """The names under which a page's headings are found."""
    titles = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```", "", TEXTS[name])):
        if target.startswith(("http", "mailto")):
            continue
        path, _, anchor = target.partition("#")
        file = ((ROOT / name).parent / path).resolve() if path else ROOT / name
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text()), target
