"""A backtest as CSV: one line per policy and context, and one per policy with all together."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from io import StringIO
from typing import Any, Final

from replay.files.output import Target, write_file

_FIGURES: Final = (
    "utility", "share_of_best_fixed", "hits", "misses", "saved", "wasted", "success_rate",
    "recall", "time_in_band", "oscillations", "convergence",
)  # fmt: skip
_UNSURE: Final = ("estimated_saved", "estimated_wasted", "unpriced_hits", "unpriced_misses")
_OVERALL: Final = ("interval_low", "interval_high", "difference", "difference_low",
                   "difference_high", *_UNSURE)  # fmt: skip


def write_csv(file: Target, found: Mapping[str, Any]) -> None:
    """Write a report as CSV; times are in milliseconds. Lines without a path are overall.

    `not_startable`: guesses besides `outcomes` that no policy could have started.
    """
    with StringIO(newline="") as out:
        writer = csv.DictWriter(
            out,
            (
                "policy",
                "tenant",
                "path",
                "outcomes",
                "not_startable",
                *_FIGURES,
                "threshold",
                *_OVERALL,
            ),
        )
        writer.writeheader()
        for name, figures in found["policies"].items():
            low, high = figures["interval"] or (None, None)
            below, above = figures["difference_interval"] or (None, None)
            writer.writerow(
                {
                    "policy": name, "outcomes": found["outcomes"],
                    "not_startable": found["not_startable"]["guesses"],
                    **{column: figures[column] for column in (*_FIGURES, *_UNSURE)},
                    "interval_low": low, "interval_high": high,
                    "difference": figures["difference"],
                    "difference_low": below, "difference_high": above,
                }
            )  # fmt: skip
        for row in found["contexts"]:
            place = {name: row[name] for name in ("tenant", "path", "outcomes", "not_startable")}
            for name, figures in row["policies"].items():
                writer.writerow(
                    {"policy": name, **place, **{c: figures[c] for c in (*_FIGURES, "threshold")}}
                )
        write_file(file, out.getvalue())
