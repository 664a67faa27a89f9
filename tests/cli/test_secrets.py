"""No command prints a password, a key or a token: not on stdout, not on stderr, not in a log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cli.main import whole
from tests.patience import PATIENCE_S
from tests.processes import command_line

PLANTED = "Pl4nted/Secr@t:x"
"""A password with characters that a URL must encode."""
PARTS = ("Pl4nted", "Secr", quote(PLANTED, safe=""))
LONG_RUNNING = {("up",), ("demo",), ("worker",), ("ship",), ("top",)}
SHOW_ADDRESSES = {("status",), ("doctor",), ("config", "show")}
AT = "127.0.0.1:1"
"""Nothing listens there."""
ADDRESSES = {
    "encoded": (
        f"postgresql://ann:{quote(PLANTED, safe='')}@{AT}/db",
        f"redis://:{quote(PLANTED, safe='')}@{AT}/0",
    ),
    "as it is": (f"postgresql://ann:{PLANTED}@{AT}/db", f"redis://:{PLANTED}@{AT}/0"),
    "parameter": (
        f"postgresql://{AT}/db?user=ann&password={quote(PLANTED, safe='')}",
        f"redis://{AT}/0?password={quote(PLANTED, safe='')}",
    ),
    "several hosts": (
        f"postgresql://ann:{quote(PLANTED, safe='')}@{AT},127.0.0.1:2/db",
        f"redis://:{quote(PLANTED, safe='')}@{AT}/0",
    ),
    "connection string": (
        f"host=127.0.0.1 port=1 user=ann password='{PLANTED}'",
        f"redis://ann:{quote(PLANTED, safe='')}@{AT}/0",
    ),
}


REQUIRED = {"mode": "off", "at": "0:1", "form": "otlp", "name": "headstart.events"}
"""What commands want that is not of any form; for others `x` will do."""


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(leaves(whole()))


def argv(path: tuple[str, ...], command: Any, postgres: str, redis: str, file: Path) -> list[str]:
    """A call that gets as far as it can: what is required, and every address."""
    found = list(path)
    given = {"--kafka": AT, "--postgres": postgres, "--redis": redis, "--data": str(file.parent)}
    for parameter in command.params:
        for option in parameter.opts:
            if option in given:
                found += [option, given[option]]
        if parameter.required:
            value = str(file) if "file" in parameter.name else REQUIRED.get(parameter.name, "x")
            found += [parameter.opts[0], value] if parameter.opts[0][0] == "-" else [value]
        elif "--yes" in parameter.opts:
            found.append("--yes")
    return found


def environment(postgres: str, redis: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if "HEADSTART" not in name},
        "HEADSTART_KAFKA": AT,
        "HEADSTART_POSTGRES": postgres,
        "HEADSTART_REDIS": redis,
        "HEADSTART_OPERATORS_KEY": PLANTED,
        "HEADSTART_DEBUG": "1",
        "PGPASSWORD": PLANTED,
    }


def found_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(part in line for part in PARTS)]


def calls(file: Path) -> Iterator[list[str]]:
    """Commands that end without a signal; those that show addresses with every form of them."""
    forms = cycle(ADDRESSES.values())
    for path, command in COMMANDS.items():
        if path in SHOW_ADDRESSES:
            for addresses in ADDRESSES.values():
                yield argv(path, command, *addresses, file)
        elif path not in LONG_RUNNING:
            yield argv(path, command, *next(forms), file)


def test_no_command_prints_a_planted_secret(tmp_path: Path) -> None:
    """One after the other in one process, as `headstart` runs them."""
    file = tmp_path / "events.jsonl"
    file.write_text('{"event_type": "task_complete"}\n')
    wanted = list(calls(file))
    assert len(wanted) > len(COMMANDS)
    ended = subprocess.run(
        [sys.executable, "-c", _RUN_ALL, repr(wanted)],
        cwd=tmp_path,
        env=environment(*ADDRESSES["encoded"]),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert found_in(ended.stdout + ended.stderr) == []
    reached = [line for line in ended.stderr.splitlines() if "unreachable" in line or AT in line]
    assert len(reached) > 20, "or they do not get as far as an address"


_RUN_ALL = """
import ast, signal, sys
from cli.main import app
from cli.support.output import report_errors
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("it took too long")))
for call in ast.literal_eval(sys.argv[1]):
    sys.argv = ["headstart", *call]
    signal.alarm(20)
    try:
        report_errors(app)
    except SystemExit:
        pass
    signal.alarm(0)
"""


@pytest.mark.parametrize(
    "command",
    [("up", "--postgres"), ("worker", "episodes"), ("worker", "thresholds")],
    ids=" ".join,
)
def test_long_running_commands_print_no_secret(command: tuple[str, ...], tmp_path: Path) -> None:
    postgres, redis = ADDRESSES["encoded"]
    call = [*command, postgres, "--redis", redis] if command[0] == "up" else list(command)
    process = subprocess.Popen(
        command_line(*call),
        cwd=tmp_path,
        env=environment(postgres, redis),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "worker.retrying" in line:
            process.send_signal(signal.SIGTERM)
            break
    lines += process.communicate(timeout=60)[0].splitlines()
    assert found_in("".join(lines)) == []
    assert len(lines) > 1 or command[0] == "worker"
    for log in tmp_path.rglob("*.log"):
        assert found_in(log.read_text(errors="replace")) == []


@pytest.mark.usefixtures("log_epoch")  # else `up` would create topics with 8 partitions
def test_up_shows_addresses_without_passwords(
    redis_url: str, kafka: str, postgres_dsn: str, tmp_path: Path
) -> None:
    given = postgres_dsn.replace("postgres@", f"postgres:{quote(PLANTED, safe='')}@", 1)
    assert given != postgres_dsn
    process = subprocess.Popen(
        command_line("up", "--no-workers", "--json", "--data", tmp_path,
                     "--kafka", kafka, "--redis", redis_url, "--postgres", given),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    shown = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _out, errors = process.communicate(timeout=PATIENCE_S)
    assert '"postgres":"postgresql://postgres:***@' in shown, errors
    assert found_in(shown + errors) == []


def test_a_planted_secret_is_found(run: Callable[..., Any]) -> None:
    assert found_in(f"x {PLANTED} y")
