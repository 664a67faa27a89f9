"""`python -m bench NAME [--json]`: runs one benchmark. Progress on stderr, figures on stdout."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Final

import orjson

from bench.measuring import say

BENCHMARKS: Final = {
    "capture": "emit() and its shipper, next to an OpenTelemetry span's end and a bare append",
    "exactness": "threshold agent with all its rules, next to itself without them",
    "frames": "events per frame of a hundred slow executors that share one shipper",
    "latency": "from emit() to a reader's mirror, at several loads",
    "learn": "every policy over simulated worlds and real traces, next to an all-knowing oracle",
    "outage": "a million events while the broker is gone: growth of executor and shipper",
    "process": "threshold agent on a drained backlog, next to Faust, Quix and Kafka Streams",
    "read": "thresholds: mirror hits, misses next to a bare HMGET, age of changes, memory",
    "replay": "six policies over an export: reading alone, judging, memory",
    "start": "a threshold worker's start to its first thresholds, empty and with a million rows",
    "sink": "episode sink on a drained backlog, next to bare psycopg COPY through a stage",
}


def main() -> None:
    """Run the benchmark that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Figures with their framing; ratios are of one run, side by side.",
        epilog="example: python -m bench process --json --events 500000",
    )
    names = "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items())
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME", help=names)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--events", type=int, help="length of the backlog")
    parser.add_argument("--kafka", default="apache", help="apache (Java, Maven) or embedded")
    parser.add_argument("--policy", action="append", help="learn: only this one; repeat for more")
    parser.add_argument("--seeds", type=int, default=20, help="learn: seeds per world")
    parser.add_argument("--first-seed", type=int, default=1000, help="learn: the first of them")
    parser.add_argument("--world", action="append", help="learn: only this one; repeat for more")
    parser.add_argument("--traces", type=Path, help="learn: agent runs, JSONL")
    arguments = parser.parse_args()
    module = importlib.import_module(f"bench.{arguments.name}")
    if arguments.name == "learn":
        figures = module.run(
            arguments.policy or (), arguments.seeds, arguments.traces,
            first_seed=arguments.first_seed, worlds=arguments.world or (),
        )  # fmt: skip
    elif arguments.name == "read":
        figures = module.run()
    else:
        figures = module.run(arguments.kafka, *([arguments.events] if arguments.events else []))
    if not arguments.json:
        figures = {**figures, **figures.pop("policies", {})}
        for name, value in figures.items():
            say(f"{name:28} {value}")
        return
    print(orjson.dumps(figures).decode(), flush=True)


if __name__ == "__main__":
    main()
