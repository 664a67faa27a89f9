"""A worker that has ended, or ends again and again, is wrong; one that was stopped is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from console.inspection.doctor.workers import check_workers
from console.inspection.target import InspectionTarget
from console.inspection.workers import Worker
from processing.worker_report import Report

DATA = Path("/data")
WORKS = Worker("thresholds", "0", 1, True, Report(worker="thresholds", pid=1, at=1, ready=True))
ENDED = Worker("episodes", "0", 2, False, None)


def levels(*workers: Worker) -> list[str]:
    return [each.level for each in check_workers(workers, DATA)]


def test_a_worker_that_ended_by_an_error() -> None:
    found = list(check_workers([replace(ENDED, ended_by="RuntimeError: no room"), WORKS], DATA))
    assert [each.level for each in found] == ["error", "ok"]
    assert found[0].what == "episodes-0 has ended: RuntimeError: no room"
    assert "headstart up" in found[0].remedy
    assert "/data/workers/logs/episodes-0.log" in found[0].remedy


def test_a_worker_that_is_started_again_and_again() -> None:
    looping = replace(ENDED, running=True, ended_by="RuntimeError: no room")
    (found, _other) = check_workers([looping, WORKS], DATA)
    assert (found.level, found.what) == (
        "error",
        "episodes-0 is starting again, after it ended: RuntimeError: no room",
    )


def test_a_worker_that_was_killed_while_others_run() -> None:
    assert levels(ENDED, WORKS) == ["error", "ok"]


def test_stopped_workers_and_replaced_workers_are_no_errors() -> None:
    assert levels(ENDED, replace(WORKS, running=False)) == ["warning", "warning"]
    other = replace(WORKS, name="episodes", instance="b")
    assert levels(replace(ENDED, ended_by="RuntimeError: no room"), other) == ["warning", "ok"]
    assert levels(replace(ENDED, running=True), WORKS) == ["warning", "ok"]  # it starts


def test_the_command_exits_with_1(target: InspectionTarget, tmp_path: Path, run: Any) -> None:
    logs = tmp_path / "workers/logs"
    logs.mkdir(parents=True)
    (logs / "episodes-0.log").write_text("error: setting learner: there is no policy 'x'\n")
    services = ("--kafka", target.kafka, "--postgres", target.postgres, "--redis", target.redis)
    ended = run("doctor", *services, "--data", str(tmp_path))
    assert (ended.returncode, ended.stderr) == (1, "errors: 1, warnings: 0\n"), ended.stdout
    message = "error    workers    episodes-0 has ended: setting learner: there is no policy 'x'"
    assert message in ended.stdout


def test_values_of_an_earlier_log_epoch_are_not_those_of_another_program() -> None:
    def noted(**repaired: int) -> list[str]:
        report = Report(worker="thresholds", pid=1, at=1, ready=True, repaired=repaired)
        found = check_workers([replace(WORKS, report=report)], DATA)
        return [each.what for each in found if each.level == "warning"]

    assert noted(outdated=58) == []
    assert noted(outdated=58, unknown=2) == ["thresholds-0: replaced 2 values in Redis (unknown 2)"]
