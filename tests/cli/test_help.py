"""Every command explains itself with an example, and refuses what it does not know."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from cli.main import app

Run = Callable[..., subprocess.CompletedProcess[str]]


def commands() -> Iterator[tuple[str, ...]]:
    """The arguments of every command that does something."""

    def walk(command: Any, name: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        children = getattr(command, "commands", None)
        if children is None:
            yield name
            return
        for child, sub in children.items():
            yield from walk(sub, (*name, child))

    return walk(typer.main.get_command(app), ())


COMMANDS = list(commands())


def test_the_commands() -> None:
    assert {" ".join(command) for command in COMMANDS} == {
        "up",
        "backtest",
        "demo",
        "worker",
        "emit",
        "ship",
        "topics list",
        "topics create",
        "topics describe",
        "thresholds list",
        "thresholds show",
        "thresholds snapshot",
        "verify",
        "learner choose",
        "learner list",
        "memory query",
        "events tail",
        "dead-letters list",
        "dead-letters show",
        "dead-letters replay",
        "dead-letters drop",
    }


@pytest.mark.parametrize("command", [*COMMANDS, ()], ids=" ".join)
def test_help_has_an_example(run: Run, command: tuple[str, ...]) -> None:
    ended = run(*command, "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    examples = [line for line in ended.stdout.splitlines() if line.strip().startswith("Example")]
    assert examples, ended.stdout
    assert "headstart " + " ".join(command) in examples[0]


@pytest.mark.parametrize("group", ["topics", "thresholds", "memory", "events", "dead-letters"])
def test_a_group_lists_its_commands(run: Run, group: str) -> None:
    ended = run(group, "--help")
    assert ended.returncode == 0
    for command in COMMANDS:
        if command[0] == group:
            assert f"  {command[1]} " in ended.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("topics",),
        ("nonsense",),
        ("topics", "nonsense"),
        ("up", "--nonsense"),
        ("worker",),
        ("worker", "nonsense"),
        ("emit",),
        ("memory", "query"),
        ("thresholds", "show"),
        ("topics", "describe"),
        ("demo", "--seconds", "soon"),
        ("demo", "--executors", "0"),
        ("events", "tail", "--limit", "0"),
        ("events", "tail", "--follow", "--json"),
        ("dead-letters",),
        ("dead-letters", "show"),
        ("dead-letters", "show", "12"),
        ("dead-letters", "show", "0:1", "--raw", "--json"),
        ("dead-letters", "list", "--since", "yesterday"),
        ("dead-letters", "replay"),
        ("dead-letters", "replay", "0:1", "--all"),
        ("dead-letters", "replay", "--all", "--file", "x"),
        ("dead-letters", "drop"),
        ("dead-letters", "drop", "0:1", "--group", "episodes"),
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)
    assert ended.returncode == 2
    assert "Usage:" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_unknown_topic_is_answered_with_those_there_are(run: Run) -> None:
    ended = run("topics", "describe", "headstart.event")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "there is no topic 'headstart.event'" in line
    assert "headstart.events, " in line


def test_a_bad_setting_is_named(run: Run) -> None:
    ended = run("topics", "list", HEADSTART_PARTITIONS="none")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "setting partitions: " in line


def test_a_file_that_is_not_there(run: Run, closed: str) -> None:
    ended = run("emit", "missing.jsonl", "--kafka", closed)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "missing.jsonl" in line
