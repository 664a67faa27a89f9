"""Every example in a command's help is one that the command takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.examples import commands, examples

COMMANDS = commands()
EXAMPLES = [(name, words) for name, command in COMMANDS.items() for words in examples(command)]


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_a_commands_help_has_an_example_of_it(name: tuple[str, ...]) -> None:
    assert any(words[: len(name)] == list(name) for words in examples(COMMANDS[name]))


@pytest.mark.parametrize(("name", "words"), EXAMPLES, ids=" ".join)
def test_an_example_parses(
    name: tuple[str, ...], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = next((length for length in (3, 2, 1) if tuple(words[:length]) in COMMANDS), None)
    assert found is not None, f"{words} is of no command"
    for word in words[found:]:
        if word.endswith((".json", ".jsonl", ".zst", ".gz", ".txt")):
            Path(word).touch()
    command: Any = COMMANDS[tuple(words[:found])]
    # Parses options and arguments, and refuses what there is not; runs nothing.
    command.make_context("headstart", words[found:]).close()
