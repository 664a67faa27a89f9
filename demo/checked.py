"""Validates agent runs in Headstart's format, as `headstart import runs` rewrites them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from demo.repeated import Repeats
from demo.traces import BrokenLine, read_runs
from replay.files.input import name_of
from replay.importers.agent_runs import Run, Unmapped, files_of, refuse, run_of, step_of
from topics.spans.storable import NotStorable, storable


def checked_runs(files: Path | Iterable[Path], unmapped: Unmapped) -> Iterator[Run]:
    """Yield the runs in files; invalid lines are counted by reason.

    Raises `NotOfThisForm` where a file has none, `CannotRead` and `OSError`.
    """
    repeats = Repeats()
    for file in files_of(files):
        unmapped.here, found = {}, False

        def count(line: BrokenLine, name: str = name_of(file)) -> None:
            unmapped.place = f"{name}:{line.line_number}"
            unmapped.add(f"lines refused: {line.reason}")

        for run in read_runs(file, count, with_content=True):
            found = True
            if not repeats.first(run):
                continue
            steps = []
            for index, (step, content) in enumerate(zip(run.steps, run.content[:-1], strict=True)):
                unmapped.place = f"{name_of(file)}, steps[{index}] of {run.run_id or run.task_id}"
                made = step_of(step.tool, step.called_at, step.returned_at, error=step.error)
                steps.append(made | _stored(content, unmapped))
            unmapped.place = f"{name_of(file)}, {run.run_id or run.task_id}"
            made = run_of(run.source, run.domain, run.agent_model, run.task_id, steps, run.trial)
            started = made["started_at"] if run.started_at is None else run.started_at
            own = {} if run.run_id is None else {"run_id": run.run_id}
            after = _stored(run.content[-1], unmapped)
            yield {**own, **made, "started_at": started, **after}
        if not found:
            refuse(file, "no agent runs: docs/reference/files.md has their form", unmapped)
    unmapped.duplicates["runs"] += repeats.dropped
    unmapped.alike += repeats.differing


def _stored(content: Mapping[str, object], unmapped: Unmapped) -> dict[str, Any]:
    """Return fields as JSON can hold them; one that it cannot hold becomes null, and is counted."""
    kept: dict[str, Any] = {}
    for name, value in content.items():
        try:
            kept[name] = storable(value, numbers_as_text=name == "result")
        except NotStorable as reason:
            unmapped.add(f"fields {name} that {reason}")
            kept[name] = None
    return kept
