"""The thread of predictors: one that hangs holds up no other, and a forked process has its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from headstart.speculation.agent_runs import predictor_thread
from headstart.speculation.agent_runs.predictor_thread import Job, PredictorThread
from tests.client.speculation.threads import WAIT_S, until


class Owner:
    """What jobs are done for."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def job(self, work: Callable[[], object]) -> Job:
        return Job(lambda: (work(), None)[1], lambda: bool(self.reasons), self.reasons.append)


def test_jobs_are_done_in_order_and_a_failure_drops_their_owner() -> None:
    thread, owner, other, done = PredictorThread(), Owner(), Owner(), list[int]()
    thread.submit(owner.job(lambda: done.append(1)))
    thread.submit(owner.job(lambda: 1 / 0))
    thread.submit(owner.job(lambda: done.append(2)))
    thread.submit(other.job(lambda: done.append(3)))
    until(lambda: 3 in done)
    assert done == [1, 3]
    assert owner.reasons == ["ZeroDivisionError('division by zero')"]
    assert other.reasons == []


def test_a_job_that_does_not_end_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, stuck, other, done = PredictorThread(), Owner(), Owner(), list[int]()
    begun, release = threading.Event(), threading.Event()
    thread.submit(stuck.job(lambda: (begun.set(), release.wait(WAIT_S))))
    assert begun.wait(WAIT_S)
    thread.submit(other.job(lambda: done.append(1)))
    thread.submit(stuck.job(lambda: done.append(2)))
    monkeypatch.setattr(predictor_thread, "STUCK_S", 0.0)
    thread.submit(other.job(lambda: done.append(3)))
    monkeypatch.undo()
    until(lambda: 3 in done)
    assert done == [1, 3]
    assert len(stuck.reasons) == 1
    left = [each for each in threading.enumerate() if each.name == "headstart-predictor"]
    release.set()
    until(lambda: any(not each.is_alive() for each in left))


def test_a_forked_process_has_a_thread_of_its_own() -> None:
    owner = Owner()
    done = threading.Event()
    predictor_thread.shared().submit(owner.job(done.set))
    assert done.wait(WAIT_S)
    child = os.fork()
    if child == 0:
        again = threading.Event()
        predictor_thread.shared().submit(owner.job(again.set))
        os._exit(0 if again.wait(WAIT_S) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
