"""Joins the records of a partition to predictions with outcomes, by the threshold agent's own core.

Duplicates, rejected records, joins, expiry and clock are the core's; this is its outcome sink. Not
here: what is done with predictions (`BacktestEngine`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from headstart.experiments import workflow_group
from headstart.keys import context_paths
from learners.constant import Always
from learners.outcome import Outcome
from processing.config import LearningConfig
from processing.contexts.levels import ContextKey, context_key_getter
from processing.records.batch import RecordBatch
from processing.state.open_predictions import START_LIFE_MS
from processing.state.rows import SPOOL
from processing.task import PartitionTask
from replay.engine.engine import BacktestEngine
from replay.log.replay import commits
from replay.predictions.assumptions import Assumed
from replay.predictions.blocks import Chain
from replay.predictions.estimates import GuessPlace
from replay.predictions.notes import Notes
from replay.predictions.outcomes_file import ROOT
from replay.predictions.unjoined import Filter
from replay.predictions.what_if import PayoffScales
from topics.schema.event_structs import EventFields

MOST_CHAINS: Final = 100_000
"""Paths whose contexts are cached."""


class _Prediction(NamedTuple):
    """A prediction: its contexts (none where it is filtered out), the group of its workflow, the
    guessed tool, and why it could not be started ("": it could).

    `number`: that of the engine where a start opened it; -1 otherwise. `calibrated`: the executor
    declares its confidence calibrated.
    """

    chain: Chain
    group: int
    tool: str | None
    not_startable: str
    number: int = -1
    calibrated: bool = False


class EnginePredictions:
    """Passes the predictions of a partition, with their outcomes, to a backtest engine."""

    def __init__(
        self,
        engine: BacktestEngine,
        levels: Sequence[str],
        chosen: Filter,
        scales: PayoffScales,
        assumed: Assumed,
    ) -> None:
        self._engine, self._levels, self._chosen = engine, tuple(levels), chosen
        self._scales, self._assumed, self._not_guessed = scales, assumed, scales.named
        self._scaled, self._assumes = bool(scales), bool(assumed)
        self._path_of = context_key_getter(levels)
        self._chains: dict[ContextKey, Chain] = {}
        self._open: dict[bytes, _Prediction] = {}
        """Those of open starts, by the start's key."""
        self.filtered = self.unmatched_elsewhere = self._unresolved_elsewhere = 0
        self.not_guessed = 0
        """Completions without a start that do not mention a guess."""

    def opened(self, key: bytes, path: ContextKey, event: EventFields) -> None:
        """Ask the engine about a prediction whose outcome comes later."""
        prediction = self._prediction(path, event)
        if prediction.chain and not self._engine.basis.incomplete:
            prediction = prediction._replace(number=self._engine.ask(prediction.chain))
        self._open[key] = prediction

    def closed(self, key: bytes, *, completed: bool) -> None:
        """Forget the prediction of a start."""
        if not self._open.pop(key).chain and not completed:
            self._unresolved_elsewhere += 1

    def learn(
        self,
        path: ContextKey,
        outcome: Outcome,
        completion: EventFields,
        start: bytes | None,
        stated: bool,
    ) -> None:
        """Pass on one outcome."""
        opened = None if start is None else self._open[start]
        prediction = self._prediction(path, completion) if opened is None or stated else opened
        chain, group, tool, reason, number, calibrated = prediction
        place = GuessPlace(path[0] or "", path[1] or "", tool or "")
        known = self._known(outcome, completion, place)
        if not chain:
            self.filtered += 1
            return
        if opened is not None:
            reason = reason or opened.not_startable
        if calibrated or (opened is not None and opened.calibrated):
            outcome = msgspec.structs.replace(outcome, calibrated=True)
        if reason and not outcome.speculated:
            outcome = msgspec.structs.replace(outcome, not_startable=reason)
            outcome = self._assumed.counted(outcome, self._engine.basis)
        if self._assumes or not (outcome.gain if outcome.correct else outcome.cost):
            outcome = self._assumed.priced(
                outcome, self._engine.basis, gain_known=known[0], cost_known=known[1], place=place
            )
        if self._engine.basis.incomplete:
            return
        if self._scaled:
            outcome = self._scales.applied(outcome, tool)
            self._not_guessed.discard(tool or "")
        self._engine.judge(chain, outcome, group, number)

    def _known(
        self, outcome: Outcome, completion: EventFields, place: GuessPlace
    ) -> tuple[bool, bool]:
        """Return whether the gain and the cost are recorded; take them for estimates.

        What a filter leaves out is taken too, so that estimates do not depend on it.
        """
        result = completion.data.result if completion.data else None
        if result is None:
            return False, False
        known = result.gain_ms is not None, result.cost_ms is not None
        if known[not outcome.correct]:
            self._engine.basis.record(outcome, place)
        return known

    def unmatched(self, completion: EventFields) -> None:
        """Count a completion without a start that the filter leaves out, by its own fields."""
        tenant, workflow_type, *levels = self._path_of(completion)
        assert tenant is not None
        assert workflow_type is not None
        domain = dict(zip(self._levels, levels, strict=True)).get("domain")
        if not self._chosen.may_hold(tenant, workflow_type, domain):
            self.unmatched_elsewhere += 1
        elif completion.confidence is None and not (completion.data and completion.data.prediction):
            self.not_guessed += 1

    def reset(self, holds: Callable[[str, str], bool]) -> None:
        """Have every policy forget contexts."""
        self._engine.reset(holds)

    def forget_closed(self) -> None:
        """Let the engine forget the predictions that can have no outcome any more."""
        waiting = (each.number for each in self._open.values() if each.number >= 0)
        self._engine.forget(min(waiting, default=self._engine.asked))

    @property
    def unresolved_elsewhere(self) -> int:
        """How many starts without a completion the filter leaves out, those still open included."""
        return self._unresolved_elsewhere + sum(not each.chain for each in self._open.values())

    def guessed_tools(self) -> set[str]:
        """Return the tools with a scale of their own that were guessed."""
        return self._scales.named - self._not_guessed

    def _prediction(self, path: ContextKey, event: EventFields) -> _Prediction:
        """Return the prediction that an event states."""
        chain, prediction = self._chains.get(path), event.data.prediction if event.data else None
        if chain is None:
            chain = self._find_chain(path)
        tool = (prediction.tool_id if prediction else None) or event.tool_id
        reason = (prediction.not_startable if prediction else None) or ""
        calibrated = prediction is not None and prediction.calibrated is True
        group = workflow_group(event.workflow_id)
        return _Prediction(chain, group, tool, reason, calibrated=calibrated)

    def _find_chain(self, path: ContextKey) -> Chain:
        """Return the engine's numbers of a path's contexts, none where it is filtered out."""
        tenant, workflow_type, *levels = path
        assert tenant is not None
        assert workflow_type is not None
        values = dict(zip(self._levels, levels, strict=True))
        chain: Chain = ()
        if self._chosen.holds(tenant, workflow_type, values.get("domain")):
            paths = context_paths(workflow_type, values.get, self._levels)
            chain = self._engine.chain(tenant, (ROOT, *paths))
        if len(self._chains) > MOST_CHAINS:
            self._chains.clear()
        self._chains[path] = chain
        return chain


class PredictionJoiner:
    """A partition of the threshold agent whose outcomes go to a backtest engine."""

    def __init__(
        self,
        partition: int,
        partitions: int,
        epoch: int,
        engine: BacktestEngine,
        levels: Sequence[str],
        chosen: Filter,
        scales: PayoffScales,
        assumed: Assumed = Assumed(),  # noqa: B008 - it is frozen
    ) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._engine = engine
        self._predictions = EnginePredictions(engine, levels, chosen, scales, assumed)
        config = LearningConfig(Always(), levels, feedback_weight=0)
        self._task = PartitionTask(
            partition, partitions, epoch, config, self._rows.get, self._predictions
        )
        self._forgot = 0

    def take(self, batch: RecordBatch, notes: Notes) -> None:
        """Apply a batch whole."""
        for commit in commits(self._task, batch):
            # The core drops spool positions from its cache, and reads them here again.
            for key, row in commit.rows:
                if key.startswith(SPOOL):
                    self._rows[key] = row
            notes.add_commit(batch.partition, commit)
        notes.records += len(batch)
        clock = self._task.state.row.clock
        if clock - self._forgot > START_LIFE_MS:
            self._forgot = clock
            self._predictions.forget_closed()

    def end(self, notes: Notes) -> None:
        """Add the core's counts to the notes, when all is read."""
        self._engine.flush()
        state, predictions = self._task.state, self._predictions
        row, still_open = state.row, len(state.open_predictions.values())
        notes.predictions += row.outcomes - predictions.filtered
        notes.duplicates += row.duplicates
        notes.unmatched += row.unmatched - predictions.unmatched_elsewhere
        notes.not_guessed += predictions.not_guessed
        notes.unresolved += row.unresolved + still_open - predictions.unresolved_elsewhere
        notes.filtered += predictions.filtered
        notes.scaled += predictions.guessed_tools()
