"""`python -m tests.chaos --rounds 20`: a table of faults, and one JSON object at the end."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cli.support.output import echo, show_table
from tests.chaos import agreement, broker_away, killing, outage, sustained, upgrade
from tests.chaos.chaos import ROUND_S, SOAK_ROUND_S, Plan, Report, run, soak
from tests.chaos.cluster import BROKERS
from tests.chaos.cluster_faults import CLUSTER_FAULTS, RESTART_WORKERS
from tests.chaos.faults import ALL_FAULTS, FAULTS

UPGRADE_PER_S = 1_000.0
WRONG = ("lost", "double", "differing", "disordered", "workers_failed")
SOAK_PER_S = 500.0
"""A steady load that two shared cores hold through every fault."""


def main() -> int:
    """Run chaos; the exit code is 0 where nothing is lost, double or differing."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="of one round; default: 60, of a soak 1200")
    parser.add_argument(
        "--events-per-s", type=float,
        help="default: 5000; of several brokers 0: a share of what is held without faults",
    )  # fmt: skip
    parser.add_argument(
        "--brokers", type=int, choices=(1, BROKERS), default=1, help="of Kafka; 3: faults of those"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", action="append", choices=list(ALL_FAULTS), help="only these")
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
    parser.add_argument(
        "--upgrade-from", metavar="COMMIT", help="only replace the processes of an earlier version"
    )
    parser.add_argument(
        "--hours", type=float, metavar="H",
        help="a soak: so long, on three brokers, --events-per-s (default 500; 0: a share of what "
        "is held), and whether memory and open files of the workers grow",
    )  # fmt: skip
    parser.add_argument("--sustained", action="store_true", help="only find the rate held calmly")
    given = parser.parse_args()
    if given.hours:
        given.brokers = BROKERS
    if given.brokers == 1 and set(given.fault or ()) & CLUSTER_FAULTS.keys():
        parser.error(f"this fault needs --brokers {BROKERS}")
    if given.brokers > 1 and "kill the broker" in (given.fault or ()):
        parser.error("of several brokers name one: --fault 'kill broker 1'")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything is ended in order then
    with tempfile.TemporaryDirectory(prefix="headstart-faults-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        return _run(given, folder)


def _run(given: argparse.Namespace, folder: Path) -> int:
    """Run what was asked for; everything that goes wrong there counts."""
    rate = given.events_per_s or 5_000.0
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
    elif given.upgrade_from:
        found = upgrade.run(folder, given.upgrade_from, given.events_per_s or UPGRADE_PER_S, echo)
    elif given.postgres_away:
        found = outage.run(folder, given.postgres_away, rate, echo)
    else:
        return _chaos(given, folder)
    print(json.dumps(found))
    return int(any(found.get(wrong) for wrong in WRONG))


def _chaos(given: argparse.Namespace, folder: Path) -> int:
    several = given.brokers > 1
    report = run(_plan(given), folder, echo)
    _table(report)
    summary = report.as_json()
    print(json.dumps(summary))
    wrong = summary["lost"] + summary["double"] + summary["differing"]
    if several:
        wrong += summary["workers_failed"] + summary.get("grows", False) + len(summary["missed"])
    return 1 if wrong or set(report.verify) - {"events", "rows"} else 0


def _plan(given: argparse.Namespace) -> Plan:
    several = given.brokers > 1
    names = given.fault or list(CLUSTER_FAULTS if several else FAULTS)
    if given.hours:
        if not given.fault:
            names.remove(RESTART_WORKERS)  # what is judged is how a process grows that lives long
        rate = SOAK_PER_S if given.events_per_s is None else given.events_per_s
        return soak(given.hours, rate, names, given.seed, given.seconds or SOAK_ROUND_S)
    return Plan(
        rounds=given.rounds,
        round_s=given.seconds or ROUND_S,
        events_per_s=given.events_per_s or (0.0 if several else 5_000.0),
        brokers=given.brokers,
        seed=given.seed,
        names=names,
        faults_per_round=min(3, len(names)),
    )


def _table(report: Report) -> None:
    columns = (
        "fault", "times", "rounds with a loss, a double or a difference", "recovery s",
        "stalest threshold s",
    )  # fmt: skip
    rows = []
    for name, times in sorted(report.done.items()):
        recoveries, stalest = report.recoveries.get(name, []), report.stalest[name]
        rows.append((name, times, report.blamed[name], _range(recoveries), _range(stalest)))
    show_table(columns, rows)


def _range(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.1f} to {max(seconds):.1f}" if seconds else ""


if __name__ == "__main__":
    sys.exit(main())
