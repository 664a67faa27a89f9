"""Searches settings on the first part of a history and confirms them on the rest.

Every candidate learns from the whole history, as it would live; only its earnings are summed
separately before and after the split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay.engine.split_sums import Split
from replay.engine.timeline import nearest
from replay.execution.runner import Backtest, OnProgress, named, run_backtest
from replay.predictions.estimates import Estimates
from replay.results.conclusion import amount, caveats, nothing_to_earn
from replay.results.sensitivity import least_lead
from replay.results.summary import report
from replay.sources.base import NothingThere, PredictionSource


@dataclass(frozen=True)
class Tuned:
    """The search and its confirmation, as reports of the two parts."""

    searched: Mapping[str, Any]
    confirmed: Mapping[str, Any]
    winner: str
    present: str
    split: Split

    @property
    def better(self) -> bool:
        """Whether the winner of the search surely earned more than the present one later on."""
        ends = self.confirmed["policies"][self.winner]["difference_interval"]
        return ends is not None and ends[0] > 0.0 and not self._may_turn

    @property
    def _may_turn(self) -> bool:
        """Whether the present policy may be the better one, if estimates are wrong."""
        return least_lead(self.confirmed, self.winner, self.present) < 0.0

    @property
    def predictions(self) -> Mapping[str, int]:
        """How many predictions each part has."""
        parts = {"searched": self.searched, "confirmed": self.confirmed}
        return {name: part["outcomes"] for name, part in parts.items()}

    @property
    def left_out(self) -> Mapping[str, Any]:
        """What the figures of both parts leave out, and rest on: see `summary.left_out`."""
        parts = [self.searched["not_startable"], self.confirmed["not_startable"]]
        reasons = Counter[str]()
        for part in parts:
            reasons.update(part["reasons"])
        apart = {"guesses": reasons.total(), "reasons": dict(sorted(reasons.items()))}
        names = ("unpriced", "unpriced_misses", "estimated", "assumptions")
        whole = {name: self.confirmed[name] for name in names}
        return {"not_startable": apart, **whole}

    @property
    def conclusion(self) -> str:
        """The result in one sentence, and what it leaves out or rests on."""
        return " ".join([self._result, *caveats(self.left_out)])

    @property
    def _result(self) -> str:
        for part in (self.searched, self.confirmed):
            if (nothing := nothing_to_earn(part)) is not None:
                return f"{nothing}: stay with {self.present}."
        if self.winner == self.present:
            return f"{self.present} earned most on the first part already: nothing to change."
        own = self.confirmed["policies"][self.winner]
        ends = own["difference_interval"]
        spread = f"{amount(ends[0])} to {amount(ends[1])}" if ends else "too few workflows"
        sentence = (
            f"{self.winner} earned most on the first part; on the later one it earned "
            f"{amount(own['difference'], sign=True)} against {self.present} "
            f"(95 % interval {spread})"
        )
        if self.better:
            return (
                f"{sentence}: confirmed. HEADSTART_LEARNER={self.winner} sets it for the workers."
            )
        why = ""
        if ends is not None and ends[0] > 0.0:
            why = ", because it may be less if the estimated gains and costs are wrong by half"
        return f"{sentence}: not confirmed{why}, so stay with {self.present}."


def tune(
    history: PredictionSource,
    candidates: Sequence[str],
    present: str,
    on_progress: OnProgress,
    *,
    share: float = 0.6,
    processes: int | None = None,
) -> Tuned:
    """Return the best of `candidates` on the first `share` of a history, judged by the rest.

    `present`: the policy that is to be beaten. Raises `NothingThere` where a part is empty.
    """
    split = split_at(history, share, on_progress, processes)
    policies = named(list(dict.fromkeys([present, *candidates])))
    units = run_backtest(Backtest(history, policies, split=split), on_progress, processes=processes)
    if all(len(unit.parts) < 2 for unit in units):
        raise NothingThere(f"{history.name}: nothing is left to confirm on; give a lower --split")
    chosen = history.reading.chosen
    searched = report(history.name, policies, units, part=0, against=present, chosen=chosen)
    confirmed = report(history.name, policies, units, part=1, against=present, chosen=chosen)
    winner = max(policies, key=lambda name: searched["policies"][name]["utility"])
    return Tuned(searched, confirmed, winner, present, split)


def split_at(
    history: PredictionSource, share: float, on_progress: OnProgress, processes: int | None = None
) -> Split:
    """Return the split after a share of a history's predictions. Raises `NothingThere`.

    That is a time, as near to the share as predictions of one millisecond allow; in a history of
    one unit a number of predictions, where no time parts it so.
    """
    nothing = {"never": "never"}
    counted = Backtest(history, nothing, timed=True, estimates=Estimates())
    units = run_backtest(counted, on_progress, processes=processes)
    found = report(history.name, nothing, units, chosen=history.reading.chosen)
    total = found["outcomes"]
    if not total:
        why = " ".join(caveats(found))
        given = history.reading.chosen.options
        matching = f" that match{given}" if given else ""
        raise NothingThere(
            f"{history.name} holds no judged predictions{matching}{why and '. '}{why}"
        )
    wanted = min(max(1, round(share * total)), max(1, total - 1))
    timelines = [unit.timeline for unit in units if unit.timeline]
    at, before = nearest(timelines, wanted) if found["courses"]["timed"] else (None, 0)
    if at is None or (len(units) == 1 and before != wanted):
        return Split(number=wanted)
    return Split(at=at)
