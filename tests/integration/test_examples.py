"""The examples in the help are run on a system that runs: those that look, and those that set."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from tests.cli.examples import commands, examples
from tests.patience import PATIENCE_S, until

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

RUN = (
    "status",
    "doctor",
    "contexts",
    "topics list",
    "topics describe",
    "thresholds list",
    "thresholds show",
    "thresholds history",
    "thresholds snapshot",
    "config show",
    "config list",
    "config set threshold",
    "learner list",
    "memory query",
    "dead-letters list",
    "verify",
)
"""Those whose examples need no address but the system's, in this order."""
LOOKS = {"status", "doctor"}
"""Those that print the current state: a service that answers late is away for a while."""
ONLY_FIRST = {"status", "verify", "thresholds export"}
FOLLOWED_BY = {"config set threshold": "config unset threshold --workflow-type refund"}


@pytest.fixture
def known(
    system: System,
    headstart: Any,
    judged: Callable[..., dict[str, Any]],
    write_events: Callable[[Sequence[dict[str, Any]]], Path],
) -> None:
    events = [judged("default", user_id="u7") for _ in range(3)]
    ended = headstart("emit", write_events(events), "--kafka", system.addresses.kafka)
    assert ended.returncode == 0, ended.stderr
    assert system.drain(PATIENCE_S)


def until_well(system: System, headstart: Any) -> None:
    """Wait until all workers are ready and get answers from what they need."""
    until(lambda: system.check() or headstart("status", "--data", system.data).returncode == 0)


def test_examples_do_what_they_describe(system: System, headstart: Any, known: None) -> None:
    found = commands()
    for name in RUN:
        of_command = examples(found[tuple(name.split())])
        lines = of_command[:1] if name in ONLY_FIRST else of_command
        if name in FOLLOWED_BY:
            lines = [*lines, FOLLOWED_BY[name].split()]
        for words in lines:
            given = [word for word in words if word not in {"--kafka", "broker:9092"}]
            ended = headstart(*given, "--data", system.data)
            if name in LOOKS and ended.returncode == 1:
                until_well(system, headstart)
                ended = headstart(*given, "--data", system.data)
            # An example may select what this system does not have; then it reports that.
            nothing = ended.returncode == 1 and "error: no " in ended.stderr
            assert nothing or ended.returncode == 0, (given, ended.stdout, ended.stderr)
            assert "Traceback" not in ended.stderr
            assert ended.stdout or ended.stderr, given


def test_top_sees_the_workers(system: System, headstart: Any, known: None) -> None:
    until_well(system, headstart)
    ended = headstart("top", "--looks", "1", "--data", system.data)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("HEALTHY  ")
    ended = headstart("status", "--json", "--data", system.data)
    found = json.loads(ended.stdout)
    assert [each["worker"] for each in found["workers"]] == [
        "episodes",
        "thresholds",
        "history",
        "predictions",
        "memory",
    ]
    assert all(each["trouble"] is None and each["age_s"] > 0 for each in found["workers"])


def test_the_second_worker_on_a_directory_names_the_first(system: System, headstart: Any) -> None:
    """The first is the supervisor's own."""
    assert system.supervisor is not None
    holder = system.supervisor.pids["episodes"]
    ended = headstart("worker", "episodes", "--data", system.data)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = [each for each in ended.stderr.splitlines() if each.startswith("error: ")]
    assert f"process {holder}" in line
    assert "--instance" in line
