"""A service that does not answer: one line with its address and the remedy, or patience."""

from __future__ import annotations

import fcntl
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, until
from tests.processes import ENVIRONMENT, command_line

Run = Callable[..., subprocess.CompletedProcess[str]]

BROKER = "start one with `headstart up`, or name yours: --kafka host:port or headstart_kafka"
POSTGRES = "start one with `headstart up`, or name yours: --postgres dsn or headstart_postgres"
REDIS = "start one with `headstart up`, or name yours: --redis url or headstart_redis"


def one_line(ended: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    (line,) = ended.stderr.splitlines()
    for part in parts:
        assert part.lower() in line.lower()


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("topics", "describe", "headstart.events"),
        ("topics", "recreate"),
        ("events", "tail"),
        ("events", "tail", "--json"),
        ("notices", "--follow"),
        ("config", "list"),
        ("config", "get", "mode", "--everybody"),
        ("config", "set", "mode", "off", "--everybody"),
        ("config", "unset", "threshold", "--workflow-type", "refund"),
        ("dead-letters", "list"),
        ("dead-letters", "show", "0:1"),
        ("dead-letters", "replay", "--all", "--yes"),
        ("dead-letters", "drop", "0:1", "--yes"),
    ],
    ids=" ".join,
)
def test_the_broker(run: Run, closed: str, command: tuple[str, ...]) -> None:
    one_line(run(*command, "--kafka", closed), closed, BROKER)


def test_the_broker_of_emit(run: Run, closed: str, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("{}\n")
    one_line(run("emit", str(file), "--kafka", closed), closed, BROKER)


def test_postgres(run: Run, closed: str) -> None:
    dsn = f"postgresql://somebody:hush@{closed}/headstart"
    ended = run("memory", "query", "--workflow-id", "w1", "--postgres", dsn)
    one_line(ended, closed, POSTGRES)
    assert "hush" not in ended.stderr


@pytest.mark.parametrize(
    "command",
    [("thresholds", "list"), ("thresholds", "show", "--workflow-type", "refund")],
    ids=" ".join,
)
def test_redis(run: Run, closed: str, command: tuple[str, ...]) -> None:
    ended = run(*command, "--redis", f"redis://:hush@{closed}/0")
    one_line(ended, closed, REDIS)
    assert "hush" not in ended.stderr


def test_topics_create_needs_the_stored_epochs(run: Run, closed: str) -> None:
    ended = run("topics", "create", "--kafka", closed, "--postgres", f"postgresql://{closed}/x")
    one_line(ended, closed, POSTGRES)


@pytest.mark.parametrize("part", ["kafka", "postgres", "redis"])
def test_up_with_an_unreachable_service(run: Run, closed: str, part: str, tmp_path: Path) -> None:
    schemes = {"kafka": "", "postgres": "postgresql://", "redis": "redis://"}
    given = {name: f"{scheme}{closed}" for name, scheme in schemes.items()}
    options = [text for name, value in given.items() for text in (f"--{name}", value)]
    ended = run("up", *options, "--data", str(tmp_path / "data"))
    assert (ended.returncode, ended.stdout) == (1, "")
    lines = ended.stderr.splitlines()
    assert lines[0] == "starting broker, Postgres and Redis"
    assert len(lines) == 2, ended.stderr
    assert closed in lines[1]
    assert "start it" in lines[1]


@pytest.mark.parametrize("name", ["thresholds", "episodes"])
def test_a_worker_waits_with_back_off(closed: str, name: str, tmp_path: Path) -> None:
    """It logs each time what is missing, waits longer and longer, and ends on a signal."""
    log = tmp_path / "log"
    argv = command_line("worker", name, "--kafka", closed)
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, cwd=tmp_path, env=ENVIRONMENT, stdout=output, stderr=output
        )
    try:

        def check() -> None:
            assert process.poll() is None, log.read_text()

        until(
            lambda: log.read_text().count("worker.retrying") >= 3,
            meanwhile=check,
            seen=log.read_text,
        )
        lines = [line for line in log.read_text().splitlines() if "worker.retrying" in line]
        for line, pause in zip(lines, ("0.5", "1.0", "2.0"), strict=False):
            assert closed in line
            assert BROKER in line.lower()
            assert f"retry_s={pause}" in line
        assert "Traceback" not in log.read_text()
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def test_a_second_worker_on_the_same_directory(run: Run, closed: str, tmp_path: Path) -> None:
    taken = tmp_path / "data" / "workers" / "history-0"
    taken.mkdir(parents=True)
    with (taken / "worker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = str(tmp_path / "data")
        ended = run("worker", "history", "--kafka", closed, "--data", data)
    one_line(ended, str(taken), "--instance")
