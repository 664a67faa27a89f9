"""Recorded agent runs as a prediction source: guesses before their calls, and their outcomes.

Whole calls are guessed where runs have arguments, else names (`demo.next_calls`), learned in the
file's order; gain and cost follow from recorded durations, else from declared ones
(`demo.call_times`). Contexts: domain, + previous tool, + the one before. For filters, a run's
source is its tenant, and its domain also its workflow type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.call_times import FAILED, CallTime, CallTimes
from demo.next_calls import CallGuesser
from demo.predictor import PredictedTool
from demo.repeated import Repeats
from demo.tool_latency import DEFAULT_COST_RATIO, LatencyModel
from demo.traces import BrokenLine, Step, TraceRun, read_runs
from headstart.experiments import workflow_group
from headstart.keys import context_paths
from learners.outcome import Outcome
from replay.files.input import name_of
from replay.files.json_lines import json_lines
from replay.predictions.assumptions import COST, GAIN, MIXED, AssumedOutcome, Basis
from replay.predictions.notes import Notes
from replay.predictions.outcomes_file import ROOT
from replay.sources.base import NothingThere, ReadOptions, ReadPrediction

_LEVELS = ("previous_tool", "tool_before")


@dataclass(frozen=True)
class TraceHistory:
    """A file of runs (`traces`). `cost_ratio`: cost / (cost + gain) of every guess."""

    file: Path
    reading: ReadOptions
    cost_ratio: float = DEFAULT_COST_RATIO
    seed: int = 0
    live: bool = False

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{name_of(self.file)} (guesses are the demo's)"

    def units(self) -> list[int]:
        """Return the one unit."""
        notes = Notes()
        if next(self._runs(notes), None) is None:
            why = f"{name_of(self.file)} holds no runs"
            if notes.refused:
                why += f": all {notes.refused} lines were refused; the first: {notes.named[0]}"
            raise NothingThere(f"{why}; docs/reference/files.md has the form of a run")
        return [0]

    def _runs(self, notes: Notes, *, with_content: bool = False) -> Iterator[TraceRun]:
        def broken(line: BrokenLine) -> None:
            notes.refused += 1
            notes.named.append(f"{name_of(self.file)}:{line.line_number}: {line.reason}")

        return read_runs(self.file, broken, with_content=with_content)

    def predictions(
        self,
        unit: int,  # noqa: ARG002
        notes: Notes,
        basis: Basis,
    ) -> Iterator[tuple[Sequence[ReadPrediction], float]]:
        """Yield the guess before every call of every run."""
        guesser, times = CallGuesser(), CallTimes(LatencyModel(self.seed, 0, self.cost_ratio))
        untimed, repeats, unmet = 0, Repeats(), self.reading.scales.named
        with json_lines(self.file) as lines:
            count = max(1, sum(1 for _, line in lines if line.strip()))
        for number, run in enumerate(self._runs(notes, with_content=True)):
            notes.records += 1
            if not repeats.first(run):
                continue
            if not self.reading.range.holds(run.started_at):
                untimed += run.started_at is None
                notes.outside += 1
                continue
            judged, found = self._chosen(run), list[ReadPrediction]()
            group = workflow_group(f"{number}")
            before: Step | None = None
            for step, guess, right, tools in guesser.steps(run.domain, run):
                notes.events += 1
                if guess is not None:
                    time = times.of_guess(guess.tool, step, before, right)
                    if judged:
                        outcome = self._outcome(guess, right, time, basis)
                        paths = _paths(run.domain, tools)
                        found.append(ReadPrediction(run.source, paths, outcome, group))
                        notes.predictions += 1
                        unmet.discard(guess.tool)
                    else:
                        notes.filtered += 1
                if step is not None:
                    times.learn(step)
                    before = step
            yield found, number / count
        notes.scaled += self.reading.scales.named - unmet
        if notes.refused:
            notes.warnings.append(
                f"{name_of(self.file)}: {notes.records} runs accepted, {notes.refused} lines "
                "refused"
            )
        notes.warnings += [f"{name_of(self.file)}: {sentence}" for sentence in repeats.sentences]
        if untimed:
            notes.warnings.append(f"{untimed} runs have no time, so they are in no range of time")
        notes.warnings += [
            f"{name_of(self.file)}: {sentence}" for sentence in guesser.runs.sentences
        ]

    def _outcome(self, guess: PredictedTool, right: bool, time: CallTime, basis: Basis) -> Outcome:
        """Return the outcome of a guess, and count the basis of its gain and cost in `basis`."""
        # A failed call is not a hit: starting it early would have saved nothing.
        correct, given = right and not time.failed, self.reading.assumed
        outcome = Outcome(
            guess.confidence, correct, gain=time.latency.gain_ms, cost=time.latency.cost_ms
        )
        outcome = given.priced(
            outcome,
            basis,
            gain_known=time.gain_known or given.gain_ms is None,
            cost_known=given.cost_ms is None,
        )
        # Durations are known afterwards. What decides is the ratio of cost and gain, and that is
        # a constant unless an option replaces one of them.
        outcome = AssumedOutcome.of(
            outcome, GAIN | COST if given.gain_ms is given.cost_ms is None else MIXED
        )
        replaced = given.gain_ms is not None if correct else given.cost_ms is not None
        if time.gain_known or not replaced:
            basis.assume(time.assumed)
        elif time.failed:
            basis.assume(FAILED)
        return self.reading.scales.applied(outcome, guess.tool)

    def _chosen(self, run: TraceRun) -> bool:
        """Return whether a run is evaluated. The predictor learns from the others, too."""
        chosen = self.reading.chosen
        return (
            chosen.tenant in (None, run.source)
            and chosen.workflow_type in (None, run.domain)
            and chosen.domain in (None, run.domain)
        )


def _paths(domain: str, history: Sequence[str]) -> tuple[str, ...]:
    """Return the contexts of a guess after some calls, coarse to fine."""
    last, before = (["-", "-", *history])[:-3:-1]
    found = {"previous_tool": last, "tool_before": before}
    return (ROOT, *context_paths(domain, found.get, _LEVELS))
