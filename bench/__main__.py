"""`python -m bench NAME [--json]`: runs one benchmark. Progress on stderr, figures on stdout."""

from __future__ import annotations

import argparse
import importlib
import inspect
from pathlib import Path
from typing import Any, Final

import orjson

BENCHMARKS: Final = {
    "backup": "a drill: create, lose everything, restore, verify; --events stored, --contexts",
    "capture": "emit() and its shipper, next to an OpenTelemetry span's end and a bare append",
    "core": "the threshold agent's pure core alone, CPU per event; --against another tree",
    "footprint": "memory of every process under a steady load, and whether it grows",
    "frames": "events per frame of a hundred slow executors that share one shipper",
    "history": "cost of an event, from the first to the 20-millionth; in parts, with --data",
    "latency": "from emit() to a reader's mirror, at several loads",
    "learn": "every policy over simulated worlds and real traces, next to an all-knowing oracle",
    "memory": "recall and times of retrieval; cost of outbox, worker, embedding and storage",
    "noticing": "what notices cost the history worker, the pure part: CPU per event and value",
    "outage": "a million events while the broker is gone: growth of executor and shipper",
    "process": "threshold agent on a drained backlog, next to Faust, Quix and Kafka Streams",
    "purge": "rows that cross between two tenants, erasure, and bytes of packed and merged runs",
    "queries": "the memory queries on a large table of episodes, and what each index is worth",
    "read": "thresholds: mirror hits, misses next to a bare HMGET, age of changes, memory",
    "replay": "six policies over an export: reading alone, judging, memory",
    "scale": "cost of an event with 1 to 4 workers, 1 to 32 partitions, 100 to 1,000,000 contexts",
    "secure": "threshold agent and emit() over TLS with logins and ACLs, next to plain connections",
    "sink": "episode sink on a drained backlog, next to bare COPY, a staged one, and executemany",
    "skew": "simulated: the hottest partition's share, by partitions and skew of the workload",
    "speculate": "what a tool call costs an agent: without a guess, and with one",
    "start": "a threshold worker's start to its first thresholds, empty and with a million rows",
}
EXAMPLES: Final = """examples:
  python -m bench process --json --events 500000 --repeat 3
  python -m bench scale --vary workers
  python -m bench scale --vary contexts --repeat 1
  python -m bench footprint --seconds 240 --rate 5000
  python -m bench history --data /var/tmp/history --events 5000000   # four times: 20 million
  python -m bench queries --rows 1000000
  python -m bench memory --json
  python -m bench purge --operations 100000 --json
  python -m bench backup --events 10000000 --contexts 100000 --data /var/tmp   # 20 GB free there

minutes, estimated for two quiet cores: queries 5, history 2 for five million events, scale 30
(--vary workers 5, --vary held 8, --vary partitions 5, --vary contexts --repeat 1 4), footprint as
asked and 1 more
"""
OPTIONS: Final[dict[str, tuple[type, str]]] = {
    "count": (int, "length of the backlog"),
    "repeat": (int, "repetitions; figures are medians, with their spread"),
    "seconds": (float, "footprint: how long the load lasts"),
    "rate": (int, "footprint: events per second"),
    "rows": (int, "queries: rows of the table"),
    "part": (
        str,
        "memory: only `storing` or `retrieval`; purge: only `crossing`, `erasure`, "
        "`packed_erasure`, `storage`, `indexes`, `pruning` or `places`",
    ),
    "operations": (int, "purge: how many are interleaved"),
    "contexts": (int, "backup: learned contexts"),
    "data": (Path, "history: directory kept from run to run; backup: where its folder is made"),
    "learner": (str, "history, scale: the policy that learns"),
    "seeds": (int, "learn, skew: seeds per world"),
    "first_seed": (int, "learn: the first of them"),
    "against": (str, "core: another checkout, measured in turns"),
    "traces": (Path, "learn: agent runs, JSONL"),
}
"""Parameters of the benchmarks' `run`, as options."""
REPEATED: Final = {
    "policies": "learn: only this policy",
    "worlds": "learn: only this world",
    "vary": "scale: only cases of other `workers`, `partitions` or `contexts` than the first, or "
    "of workers each `held` to a quarter of a core (root)",
}
FLAGS: Final = {
    "count": "events", "first_seed": "first-seed", "policies": "policy", "worlds": "world",
}  # fmt: skip
"""Where an option has another name."""


def main() -> None:
    """Run the benchmark that the command line names."""
    parser = _parser()
    arguments = vars(parser.parse_args())
    name, as_json = arguments.pop("name"), arguments.pop("json")
    run = importlib.import_module(f"bench.{name}").run
    takes = inspect.signature(run).parameters
    given = {option: value for option, value in arguments.items() if value is not None}
    if "events" in takes and "count" in given:
        given["events"] = given.pop("count")
    unknown = given.keys() - takes.keys()
    if unknown:
        flags = ", ".join(f"--{FLAGS.get(each, each)}" for each in sorted(unknown))
        parser.error(f"{name} takes no {flags}: see --help")
    kafka = {"kafka": given.get("kafka", "apache")} if "kafka" in takes else {}
    _show(run(**{**given, **kafka}), as_json=as_json)


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:10} {what}" for name, what in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Figures with their framing; ratios are of one run, side by side.\n\n{listed}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME", help="one of those above")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--kafka", help="apache (Java, Maven; the default) or embedded")
    for name, what in REPEATED.items():
        flag = f"--{FLAGS.get(name, name)}"
        parser.add_argument(flag, dest=name, action="append", help=f"{what}; repeat for more")
    for name, (kind, what) in OPTIONS.items():
        parser.add_argument(f"--{FLAGS.get(name, name)}", dest=name, type=kind, help=what)
    return parser


def _show(figures: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(orjson.dumps(figures).decode(), flush=True)
        return
    by_policy = figures.pop("policies", {})
    for name, value in {**figures, **by_policy}.items():
        print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
