"""Every command explains itself with an example, and refuses what it does not know."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from cli.main import COMMANDS as PLACES
from cli.main import app, whole
from tests.cli.examples import commands

Run = Callable[..., subprocess.CompletedProcess[str]]


COMMANDS = list(commands())


def test_a_command_is_listed_by_the_first_line_of_its_help() -> None:
    listed = {name: command.get_short_help_str(1_000) for name, command in whole().commands.items()}
    assert {name: place.help for name, place in PLACES.items()} == listed


def test_the_commands() -> None:
    assert {" ".join(command) for command in COMMANDS} == {
        "up",
        "status",
        "top",
        "doctor",
        "contexts",
        "backtest",
        "replay",
        "export",
        "import",
        "tune",
        "experiment",
        "predict evaluate",
        "predict models",
        "predict reset",
        "predict verify",
        "demo",
        "worker",
        "emit",
        "ship",
        "spool purge",
        "topics list",
        "topics create",
        "topics delete",
        "topics recreate",
        "topics describe",
        "topics acl",
        "thresholds list",
        "thresholds show",
        "thresholds history",
        "thresholds export",
        "thresholds snapshot",
        "thresholds reset",
        "thresholds import",
        "thresholds republish",
        "verify",
        "rebuild",
        "migrate",
        "backup create",
        "backup verify",
        "backup restore",
        "backup purges",
        "learner choose",
        "learner list",
        "memory query",
        "memory search",
        "memory context",
        "memory policy",
        "memory evaluate",
        "memory graph",
        "memory stats",
        "memory show",
        "memory list",
        "memory correct",
        "memory delete",
        "memory profile show",
        "memory profile set",
        "memory export",
        "memory import",
        "memory backfill",
        "memory purge",
        "memory pack",
        "memory consolidate",
        "memory prune",
        "memory keys new",
        "memory keys list",
        "memory keys rotate",
        "memory keys shred",
        "memory quarantine list",
        "memory quarantine release",
        "config set threshold",
        "config set mode",
        "config unset threshold",
        "config unset mode",
        "config get threshold",
        "config get mode",
        "config list",
        "config show",
        "notices list",
        "events tail",
        "dead-letters list",
        "dead-letters show",
        "dead-letters replay",
        "dead-letters drop",
    }


def ask(*arguments: str) -> Result:
    """Run the command line in this process, at a tenth of the time that a new one takes."""
    return CliRunner().invoke(app, arguments, prog_name="headstart")


def test_help_of_a_process(run: Run) -> None:
    ended = run("topics", "list", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    shown = ended.stdout.replace("python -m cli", "headstart").split()
    assert shown == ask("topics", "list", "--help").stdout.split()  # the width may differ


@pytest.mark.parametrize("command", [*COMMANDS, ()], ids=" ".join)
def test_help_has_an_example(command: tuple[str, ...]) -> None:
    ended = ask(*command, "--help")
    assert (ended.exit_code, ended.stderr) == (0, "")
    examples = [line for line in ended.stdout.splitlines() if line.strip().startswith("Example")]
    assert examples, ended.stdout
    assert "headstart " + " ".join(command) in examples[0]


@pytest.mark.parametrize(
    "group", ["topics", "thresholds", "memory", "config", "events", "dead-letters", "notices"]
)
def test_a_group_lists_its_commands(group: str) -> None:
    ended = ask(group, "--help")
    assert ended.exit_code == 0
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
        ("thresholds", "export", "-", "--json"),
        ("topics", "describe"),
        ("demo", "--seconds", "soon"),
        ("demo", "--executors", "0"),
        ("events", "tail", "--limit", "0"),
        ("events", "tail", "--follow", "--json"),
        ("notices", "list", "--follow", "--json"),
        ("notices", "--kind", "nonsense"),
        ("notices", "nonsense"),
        ("config",),
        ("config", "set"),
        ("config", "set", "threshold", "--speculate", ".9"),
        ("config", "set", "threshold", "--workflow-type", "refund"),
        ("config", "set", "threshold", "--workflow-type", "refund", "--speculate", "2"),
        ("config", "set", "threshold", "--workflow-type", "refund", "--speculate", "nan"),
        ("config", "set", "mode", "on", "--everybody"),
        ("config", "set", "mode", "off"),
        ("config", "set", "mode", "off", "--tenant", "t", "--everybody"),
        ("config", "set", "mode", "off", "--agent", "a"),
        ("config", "unset", "mode"),
        ("status", "--timeout", "3"),
        ("top", "--looks", "0"),
        ("contexts", "--since", "yesterday"),
        ("thresholds", "history"),
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
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    ended = ask(*arguments)
    assert ended.exit_code == 2, ended.exception
    assert "Usage:" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [("backtest", "--gain", "nan"), ("top", "--every", "inf"),
     ("config", "set", "threshold", "--speculate", "NaN")],
)  # fmt: skip
def test_a_number_must_be_finite(arguments: tuple[str, ...]) -> None:
    *words, option, _ = arguments
    command = commands()[tuple(words)]
    with pytest.raises(typer.BadParameter, match="must be a finite number"):
        command.make_context(words[-1], list(arguments[len(words) :]))
    assert option in {name for each in command.params for name in each.opts}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--for", "2 hours"), "no age"),
        (("--for", "0s"), "ended already"),
        (("--until", "tomorrow"), "ISO 8601"),
        (("--until", "2020-01-01"), "ended already"),
        (("--for", "2h", "--until", "2030-01-01"), "not both"),
        (("--suggest", ".95"), "nothing would be suggested"),
        (("--context", "domain"), "KEY=VALUE"),
        (("--context", "domian=retail"), "did you mean 'domain'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_invalid_override(run: Run, more: tuple[str, ...], why: str) -> None:
    given = ("--workflow-type", "refund", "--speculate", ".9")
    ended = run("config", "set", "threshold", *given, *more)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert why in " ".join(ended.stderr.replace("│", "").split())


def test_an_unknown_setting(run: Run) -> None:
    ended = run("config", "show", "lerner")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "there is no setting 'lerner' (did you mean 'learner'?)" in ended.stderr


def test_settings_are_shown_with_their_origin(run: Run, tmp_path: Path) -> None:
    (tmp_path / "headstart.toml").write_text("partitions = 3\n")
    given = {"HEADSTART_REDIS": "redis://:hush@h:1/0", "HEADSTART_KAFKA_PORT": "tcp://10.0.0.1:9"}
    ended = run("config", "show", "--json", **given)
    note = "note: HEADSTART_KAFKA_PORT is no setting; nothing reads it"
    assert ended.stderr.splitlines() == [note]
    found = {each["name"]: each for each in json.loads(ended.stdout)["settings"]}
    assert (found["partitions"]["value"], found["redis"]["value"]) == (3, "redis://:***@h:1/0")
    assert found["partitions"]["origin"] == "file headstart.toml, line 1"
    assert found["redis"]["origin"] == "environment HEADSTART_REDIS"
    assert found["kafka"]["origin"] == "default"


def test_a_misspelt_variable(run: Run) -> None:
    ended = run("topics", "list", HEADSTART_KAFAK="b:1")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert (
        ended.stderr == "error: HEADSTART_KAFAK is no setting (did you mean 'HEADSTART_KAFKA'?)\n"
    )


def test_an_unknown_topic_lists_the_known_ones(run: Run) -> None:
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


def test_a_missing_file(run: Run, closed: str) -> None:
    ended = run("emit", "missing.jsonl", "--kafka", closed)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "missing.jsonl" in line
