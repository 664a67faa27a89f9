"""`python -m tests.chaos --rounds 20`: a table of faults, and one JSON object at the end."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from cli.support.output import echo, show_table
from tests.chaos import agreement, broker_away, killing, outage, sustained
from tests.chaos.chaos import Plan, Report, run
from tests.chaos.faults import FAULTS


def main() -> int:
    """Run chaos; the exit code is 0 where nothing is lost, double or differing."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one round")
    parser.add_argument("--events-per-s", type=float, default=5_000.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="only these")
    parser.add_argument("--keep", type=Path, help="keep all data and logs in this new directory")
    parser.add_argument(
        "--postgres-away", type=float, metavar="SECONDS", help="only this, and how it is caught up"
    )
    parser.add_argument(
        "--kill-clients", type=int, metavar="N", help="only kill -9 N executors and N shippers"
    )
    parser.add_argument(
        "--broker-away", type=float, metavar="SECONDS", help="only this, and what emit() takes"
    )
    parser.add_argument(
        "--agreement", action="store_true",
        help="only compare a run with kills of a worker, --events long, with its replay",
    )  # fmt: skip
    parser.add_argument("--events", type=int, default=200_000, help="of --agreement")
    parser.add_argument("--kills", type=int, default=12, help="of --agreement")
    parser.add_argument("--sustained", action="store_true", help="only find the rate held calmly")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headstart-faults-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        return _run(given, folder)


def _run(given: argparse.Namespace, folder: Path) -> int:
    """Run what was asked for; everything that goes wrong there counts."""
    rate = given.events_per_s
    if given.sustained:
        print(json.dumps(sustained.run(folder, echo)))
        return 0
    if given.agreement:
        plan = agreement.Agreement(given.events, given.kills, rate, given.seed)
        compared = agreement.run(folder, "apache", plan, echo)
        print(json.dumps(compared))
        return int(agreement.wrong(compared))
    if given.kill_clients:
        found = killing.run(folder, given.kill_clients, rate, given.seed, echo)
    elif given.broker_away:
        found = broker_away.run(folder, given.broker_away, rate, echo)
    elif given.postgres_away:
        found = outage.run(folder, given.postgres_away, rate, echo)
    else:
        return _chaos(given, folder)
    print(json.dumps(found))
    return int(any(found.get(wrong) for wrong in ("lost", "double", "differing", "disordered")))


def _chaos(given: argparse.Namespace, folder: Path) -> int:
    plan = Plan(
        rounds=given.rounds,
        round_s=given.seconds,
        events_per_s=given.events_per_s,
        seed=given.seed,
        names=given.fault or list(FAULTS),
        faults_per_round=min(3, len(given.fault or FAULTS)),
    )
    report = run(plan, folder, echo)
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
