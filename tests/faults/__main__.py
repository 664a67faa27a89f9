"""`python -m tests.faults --rounds 20`: a table of faults, and one JSON object at the end."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from cli.output import say, show_table
from tests.faults import outage, sustained
from tests.faults.chaos import Plan, Report, run
from tests.faults.faults import FAULTS


def main() -> int:
    """Run chaos; the exit code is 0 where nothing is lost, double or differing."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one round")
    parser.add_argument("--events-per-s", type=float, default=5_000.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="only these")
    parser.add_argument("--keep", type=Path, help="keep all data and logs in this new directory")
    parser.add_argument(
        "--postgres-away", type=float, metavar="SECONDS", help="only this, and how it is caught up"
    )
    parser.add_argument("--sustained", action="store_true", help="only find the rate held calmly")
    given = parser.parse_args()
    if given.sustained:
        with tempfile.TemporaryDirectory(prefix="headstart-sustained-") as folder:
            print(json.dumps(sustained.run(given.keep or Path(folder), say)))
        return 0
    if given.postgres_away:
        with tempfile.TemporaryDirectory(prefix="headstart-outage-") as folder:
            found = outage.run(
                given.keep or Path(folder), given.postgres_away, given.events_per_s, say
            )
        print(json.dumps(found))
        return 1 if found["lost"] + found["double"] + found["differing"] else 0
    plan = Plan(
        rounds=given.rounds,
        round_s=given.seconds,
        events_per_s=given.events_per_s,
        seed=given.seed,
        names=given.fault or list(FAULTS),
        faults_per_round=min(3, len(given.fault or FAULTS)),
    )
    with tempfile.TemporaryDirectory(prefix="headstart-chaos-") as folder:
        report = run(plan, given.keep or Path(folder), say)
    _table(report)
    summary = report.as_json()
    print(json.dumps(summary))
    wrong = summary["lost"] + summary["double"] + summary["differing"]
    return 1 if wrong or set(report.verify) - {"events", "rows"} else 0


def _table(report: Report) -> None:
    columns = ("fault", "times", "rounds with a loss, a double or a difference", "recovery s")
    rows = []
    for name, times in sorted(report.done.items()):
        recoveries = report.recoveries.get(name, [])
        shown = f"{min(recoveries):.1f} to {max(recoveries):.1f}" if recoveries else ""
        rows.append((name, times, report.blamed[name], shown))
    show_table(columns, rows)


if __name__ == "__main__":
    sys.exit(main())
