"""Records to predictions, by the very core that the threshold agent runs.

Duplicates, refused records, lanes, joins and expiry are the core's; here it only is listened to.
Not here: what is done with predictions (`judge`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from headstart.experiments import workflow_group
from headstart.keys import context_paths
from learners.constant import Always
from learners.outcome import Outcome
from processing.apply.per_event import outcome_of
from processing.config import LearningConfig
from processing.contexts.cache import ContextCache
from processing.contexts.levels import ContextKey
from processing.control.learned_defaults import LearnedDefaults
from processing.control.learner_assignments import LearnerAssignments, matcher
from processing.records.batch import RecordBatch
from processing.state.open_predictions import START_LIFE_MS, task_of
from processing.state.rows import OpenPredictionRow
from processing.task import Checkpoint, PartitionTask, decoded
from replay.engine.engine import BacktestEngine
from replay.log.replay import commits
from replay.predictions.assumptions import Assumed
from replay.predictions.blocks import Chain, Step
from replay.predictions.outcomes_file import ROOT
from replay.predictions.unjoined import Filter, FilteredStarts
from replay.predictions.what_if import PayoffScales
from topics.control.messages import Clock, Control, Reset
from topics.schema.event_structs import EventFields, PredictionFields, ResultFields

MOST_NAMED: Final = 20
"""Refused events kept in words; all are counted."""


@dataclass
class Notes:
    """What was read, and what of it was no prediction.

    `unmatched`: completions that say no outcome and have no open start; `unresolved`: starts that
    no completion followed, within an hour or up to the end of what was read; both of what the
    filter leaves.
    """

    records: int = 0
    events: int = 0
    predictions: int = 0
    duplicates: int = 0
    unmatched: int = 0
    unresolved: int = 0
    refused: int = 0
    filtered: int = 0
    scaled: list[str] = field(default_factory=list)
    """Tools with a scale of their own that were guessed, once for each unit."""
    named: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def took(self, partition: int, commit: Checkpoint) -> None:
        """Count what came of one step."""
        self.events += commit.events
        self.refused += len(commit.dead_letters)
        for letter in commit.dead_letters[: MOST_NAMED - len(self.named)]:
            self.named.append(f"partition {partition}, offset {letter.offset}: {letter.reason}")

    def add(self, other: Notes) -> None:
        """Add another partition's."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        del self.named[MOST_NAMED:]


def _rules(levels: Sequence[str]) -> LearningConfig:
    """Return rules by which predictions alone are passed on; what they teach is the judge's."""
    return LearningConfig(Always(), levels, feedback_weight=0)


class _Found(NamedTuple):
    """Where a prediction belongs: its contexts (none where it is filtered out), the group of its
    workflow, and the guessed tool, where that matters; why it could not be started ("": it could).
    """

    chain: Chain = ()
    group: int = 0
    tool: str | None = None
    not_startable: str = ""


class _Asked(tuple[str | None, ...]):
    """The levels of a prediction's context, with what is to be known when it is judged."""

    number: int
    found: _Found


class _Heard(ContextCache):
    """Stands where the agent has its contexts, and passes on what they would learn."""

    def __init__(
        self,
        judge: BacktestEngine,
        levels: Sequence[str],
        epoch: int,
        chosen: Filter,
        scales: PayoffScales,
        assumed: Assumed,
    ) -> None:
        super().__init__(
            _rules(levels),
            LearnerAssignments(epoch),
            LearnedDefaults(epoch),
            epoch,
            lambda _: None,
            most=0,
        )
        self._judge = judge
        self.filtered = self.unmatched_elsewhere = 0
        self._chosen, self._scales = chosen, scales
        self.scaled, self._unmet = bool(scales), scales.named
        self._assumed = assumed
        self.plain = not (scales or assumed)
        """Whether outcomes are judged as they are recorded."""
        self.result: ResultFields | None = None
        """What the completion says that is being learned from."""
        self.start_not_startable = ""
        """Why the start of this completion could not be started, as far as it says."""
        self.chain_of: dict[ContextKey, Chain] = {}
        """Of places that belong to this partition; none where they are filtered out."""
        self._now = _Found()

    def levels_of(self, event: EventFields) -> tuple[str | None, ...]:
        """Return the levels, and note that a prediction is asked about that is not judged yet."""
        place = self.place_of(event)
        levels = place[2:]
        chain = self.chain_of.get(place)
        if chain is None:
            chain = self._chain_at(place)
        tool, prediction = None, event.data.prediction if event.data else None
        if self.scaled:
            tool = (prediction.tool_id if prediction else None) or event.tool_id
        reason = (prediction.not_startable if prediction else None) or ""
        self._now = now = _Found(chain, workflow_group(event.workflow_id), tool, reason)
        if event.event_type != "speculation_start":
            return levels
        asked = _Asked(levels)
        asked.number = self._judge.ask(chain) if chain else -1
        asked.found = now
        return asked

    def learn(
        self,
        tenant: str,  # noqa: ARG002
        workflow_type: str,  # noqa: ARG002
        levels: tuple[str | None, ...],
        outcome: Outcome,
        offset: int,  # noqa: ARG002
    ) -> None:
        """Pass on one outcome: of a start, or of the event whose levels were asked for last."""
        number, found = -1, self._now
        if type(levels) is _Asked:
            number, found = levels.number, levels.found
        chain, group, tool, reason = found
        if not chain:
            self.filtered += 1
            return
        reason = reason or self.start_not_startable
        if reason and not outcome.speculated:
            outcome = msgspec.structs.replace(outcome, not_startable=reason)
            outcome = self._assumed.counted(outcome, self._judge.basis)
        outcome = self.price(outcome, self.result)
        if self.scaled:
            outcome = self._scales.applied(outcome, tool)
            self._unmet.discard(tool or "")
        self._judge.judge(chain, outcome, group, number)

    def price(self, outcome: Outcome, result: ResultFields | None) -> Outcome:
        """Return an outcome with what is assumed where its completion says no gain or cost."""
        return self._assumed.priced(
            outcome,
            self._judge.basis,
            gain_known=result is not None and result.gain_ms is not None,
            cost_known=result is not None and result.cost_ms is not None,
        )

    def met(self) -> set[str]:
        """Return the tools with a scale of their own that were guessed."""
        return self._scales.named - self._unmet

    def _chain_at(self, place: ContextKey) -> Chain:
        """Return the numbers of a context, none where it is filtered out."""
        tenant, workflow_type, *levels = place
        assert tenant is not None
        assert workflow_type is not None
        values = dict(zip(self.levels, levels, strict=True))
        chain: Chain = ()
        if self._chosen.holds(tenant, workflow_type, values.get("domain")):
            paths = context_paths(workflow_type, values.get, self.levels)
            chain = self._judge.chain(tenant, (ROOT, *paths))
        if len(self.chain_of) > 100_000:
            self.chain_of.clear()
        self.chain_of[place] = chain
        return chain

    def unmatched(self, event: EventFields) -> None:
        """Note a completion without a start, by what it says of its place."""
        tenant, workflow_type, *levels = self.place_of(event)
        assert tenant is not None
        assert workflow_type is not None
        domain = dict(zip(self.levels, levels, strict=True)).get("domain")
        self.unmatched_elsewhere += not self._chosen.may_hold(tenant, workflow_type, domain)

    def drain(self) -> tuple[list[tuple[bytes, bytes]], list[object], list[object]]:  # type: ignore[override]
        """Return nothing: no rows are written."""
        return [], [], []


class PredictionJoiner(PartitionTask):
    """The partition of the threshold agent, whose outcomes go to a judge instead of rows."""

    def __init__(
        self,
        partition: int,
        partitions: int,
        epoch: int,
        judge: BacktestEngine,
        levels: Sequence[str],
        chosen: Filter,
        scales: PayoffScales,
        assumed: Assumed = Assumed(),  # noqa: B008 - it is frozen
    ) -> None:
        self._rows: dict[bytes, bytes] = {}
        super().__init__(partition, partitions, epoch, _rules(levels), self._rows.get)
        self._heard = _Heard(judge, levels, epoch, chosen, scales, assumed)
        self._judge = judge
        self._contexts = self._heard
        self._heard.clock = self.clock
        self._narrowed: FilteredStarts | None = None
        if chosen:
            self._narrowed = FilteredStarts(epoch, self.clock.arrived, _is_left_out)
            self._starts = self._narrowed
        self._forgot = 0

    def _follow(self, control: Control, offset: int) -> None:
        """Forget what operators had forgotten, and follow the clock; pass over what is about one
        learner's own state."""
        if isinstance(control, Reset):
            holds = matcher(control.pattern, control.tenant)
            if self._interventions.new(control):
                self._interventions.note(control, offset)
                self._judge.reset(holds)
        elif isinstance(control, Clock):
            super()._follow(control, offset)

    def _complete(self, event: EventFields, offset: int) -> str | None:
        """Apply a completion, which may be of a start that says why it could not be started."""
        reason = ""
        if (key := self._start_of(event)) is not None:
            start = self._starts.get(key)
            if start is not None and type(start.levels) is _Asked:
                reason = start.levels.found.not_startable
        self._heard.start_not_startable = reason
        before = self._row.unmatched
        refused = super()._complete(event, offset)
        if self._narrowed is not None and self._row.unmatched != before:
            self._heard.unmatched(event)
        return refused

    def _learn(self, event: EventFields, *what: Any) -> str | None:
        """Pass on an outcome, with what its completion says of gain and cost."""
        self._heard.result = event.data.result if event.data else None
        return super()._learn(event, *what)

    def _run(self, batch: RecordBatch, begin: int) -> tuple[int, int]:
        """Judge events that are whole predictions by themselves, as nearly all are, run by run.

        What the core does with such an event stands here once more, flat. All else goes its way.
        """
        row, heard, steps, groups = self._row, self._heard, list[Step](), list[int]()
        place_of, chain_of = heard.place_of, heard.chain_of if heard.plain else {}
        positions, duplicate = self._spools.positions, self._spools.duplicate
        opened, awaits, due, taken = self._starts.keys(), self._starts.awaits, self._due(), 0
        moves = not self.clock.witnessed
        for position, found in enumerate(decoded(batch, begin), begin):
            offset = batch.offsets[position]
            if found is None:
                self._pass_on(steps, groups)
                self._record(batch, position, offset)
                due = self._due()
                continue
            events: Sequence[EventFields] = found if type(found) is list else (found,)  # type: ignore[assignment]
            taken += len(events)
            for event in events:
                data, at = event.data, event.timestamp
                if (
                    event.event_type == "task_complete"
                    and data is not None
                    and (prediction := data.prediction) is not None
                    and (prediction.not_startable is None or prediction.speculated is True)
                    and (at < due or (moves and at <= row.clock))
                    and (chain := chain_of.get(place_of(event))) is not None
                    and not (opened and awaits(*task_of(event)))
                    and (outcome := _outcome(event, prediction)) is not None
                ):
                    if moves and at > row.clock:
                        row.clock = at
                    if (origin := event.origin) is not None:
                        place = event.tenant, event.workflow_type, origin[0]
                        seen = positions.get(place)
                        if seen is not None and seen.touched and origin[1] > seen.position:
                            seen.position, seen.at, seen.offset = origin[1], row.clock, offset
                        elif duplicate(*place[:2], origin, row.clock, offset):
                            row.duplicates += 1
                            continue
                    row.outcomes += 1
                    if chain:
                        if not (outcome.gain if outcome.correct else outcome.cost):
                            heard.price(outcome, data.result)
                        steps.append((chain, outcome, -1))
                        groups.append(workflow_group(event.workflow_id))
                    else:
                        heard.filtered += 1
                    continue
                self._pass_on(steps, groups)
                self._take(batch, position, event, event.origin, offset)
                due = self._due()
        self._pass_on(steps, groups)
        return position + 1, taken

    def _pass_on(self, steps: list[Step], groups: list[int]) -> None:
        """Have what was gathered judged, before anything else is."""
        if steps:
            self._judge.judge_all(steps, groups)
            steps.clear()
            groups.clear()

    def take(self, batch: RecordBatch, notes: Notes) -> None:
        """Apply a batch whole."""
        for commit in commits(self, batch):
            # What the core may forget because the table has it, it is given back from here.
            for key, row in commit.rows:
                if key[:1] == b"o":
                    self._rows[key] = row
            notes.took(batch.partition, commit)
        notes.records += len(batch)
        if self._row.clock - self._forgot > START_LIFE_MS:
            self._forgot = self._row.clock
            self._judge.forget(min(self._waiting(), default=self._judge.asked))

    def _waiting(self) -> Iterator[int]:
        """Yield the numbers of what the core has open: by its own rule, not by one like it."""
        for start in self._starts.values():
            if type(start.levels) is _Asked and start.levels.number >= 0:
                yield start.levels.number

    def end(self, notes: Notes) -> None:
        """Add the core's own counts to the notes, when all is read."""
        self._judge.flush()
        notes.predictions += self._row.outcomes - self._heard.filtered
        notes.duplicates += self._row.duplicates
        notes.unmatched += self._row.unmatched - self._heard.unmatched_elsewhere
        notes.unresolved += self._row.unresolved + len(self._starts.values())
        if self._narrowed is not None:
            notes.unresolved -= self._narrowed.unresolved_elsewhere()
        notes.filtered += self._heard.filtered
        notes.scaled += self._heard.met()


def _is_left_out(start: OpenPredictionRow) -> bool:
    return type(start.levels) is _Asked and not start.levels.found.chain


def _outcome(event: EventFields, prediction: PredictionFields) -> Outcome | None:
    """Return what an event says by itself; None where that is nothing, or nothing to learn from."""
    confidence, correct = event.confidence, prediction.was_correct
    if confidence is None or correct is None:
        return None
    mode, speculated = prediction.mode or "speculative", bool(prediction.speculated)
    try:
        return outcome_of(event, confidence, correct, mode, speculated)
    except ValueError:
        return None
