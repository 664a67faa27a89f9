"""Makes cases of recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.prediction.interface import ToolCall
from memory.cases.case import Case
from replay.evaluation.recorded_run import RecordedRun
from replay.evaluation.runs_file import read_recorded_runs


@dataclass(frozen=True)
class RunCases:
    """The cases of a file of `local_file`, which knows no tenants."""

    file: Path

    def cases(self, tenant: str) -> list[Case]:  # noqa: ARG002
        """Return all cases. Raises what `read_recorded_runs` raises."""
        return cases_of(read_recorded_runs(self.file).runs)


def cases_of(runs: Sequence[RecordedRun]) -> list[Case]:
    """Return a case for each run with a call, in their order.

    The query is the run's own, else the user's first message before the first call. The writer is
    the user, else the task, else the run itself: a run file says nothing else of its origin.
    """
    found = []
    for number, run in enumerate(runs):
        if not run.steps:
            continue
        key = f"run-{number}"
        task = f"{run.domain}/{run.task}" if run.task else ""
        messages = run.steps[0].user_before
        found.append(
            Case(
                key=key,
                writer=run.user_id or task or key,
                task=task,
                kind=run.domain,
                query=run.query or (messages[0] if messages else ""),
                calls=tuple(ToolCall(step.tool, step.arguments) for step in run.steps),
                reward=run.reward,
                at=run.started_at,
            )
        )
    return found
