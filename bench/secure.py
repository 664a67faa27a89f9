"""What security costs: the threshold agent and `emit()` over TLS, next to plain connections.

Both sides are stacks of their own on Apache Kafka, one after the other, in turns. The secured one
is that of `headstart up --secure`: SASL_SSL with SCRAM-SHA-512 and an authorizer, Postgres and
Redis with TLS, and the worker logs in with its own rights. The backlog is the first case of
`bench process`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.process import threshold_agent
from bench.support.measuring import PARTITIONS, bench_command, echo, frames, produce, quantile
from bench.support.repeating import ratio, repeated
from deploy.access.rights import EXECUTOR, OPERATOR
from deploy.local import Addresses, Stack, StackConfig
from deploy.local.secure.credentials import Credentials
from deploy.system import prepare
from headstart.connections.own_security import use_security

EMITS: Final = 5_000
PATIENCE_S: Final = 600.0


@dataclass(frozen=True)
class Side:
    """One stack: with credentials if it is secured."""

    addresses: Addresses
    folder: Path
    credentials: Credentials | None

    def log_in(self, identity: str) -> None:
        """Connect to Kafka as one of the processes from here on."""
        use_security(self.credentials.kafka(identity) if self.credentials else None)

    def login(self, identity: str) -> Mapping[str, str]:
        """Return the settings of a process of its own."""
        if self.credentials is None:
            return {"HEADSTART_KAFKA": self.addresses.kafka}
        return self.credentials.variables(identity, self.addresses)


def run(events: int = 1_000_000, repeat: int = 3) -> dict[str, Any]:
    """Return the medians of rates and of the time of `emit()`, and their ratios.

    `secure_ratio`: the secured worker's events/s as a share of the plain one's. `emit_ratio`: the
    median time of `emit()` in a process that is shipped over TLS, as a share of the plain one's.
    """
    figures = repeated(lambda number: _pair(number, events), repeat)
    return {
        **figures,
        "events": events,
        "framing": "one event per record, one context level, ema; both sides on Apache Kafka, in "
        "turns; emit() at 1,000 events/s, busy between, with the shared shipper",
    }


def _pair(number: int, events: int) -> dict[str, float | None]:
    order = (True, False) if number % 2 else (False, True)
    rates, emits = {}, {}
    for secure in order:
        with _side(secure=secure) as side:
            rates[secure], emits[secure] = _rate(side, events), _emit_us(side)
        echo(f"{'secure' if secure else 'plain'}: {rates[secure]:,.0f} events/s, "
             f"emit {emits[secure]:.1f} us")  # fmt: skip
    return {
        "plain_events_per_s": round(rates[False]),
        "secure_events_per_s": round(rates[True]),
        "secure_ratio": ratio(rates[True], rates[False]),
        "plain_emit_p50_us": round(emits[False], 1),
        "secure_emit_p50_us": round(emits[True], 1),
        "emit_ratio": ratio(emits[True], emits[False]),
    }


@contextmanager
def _side(*, secure: bool) -> Iterator[Side]:
    """Yield a prepared stack on an empty directory. Raises `StackError` without its programs."""
    with TemporaryDirectory(prefix="headstart-bench-") as folder:
        path = Path(folder)
        path.chmod(0o711)  # started as root, Postgres is run by another user
        try:
            with Stack(StackConfig(data=path / "stack", kafka="apache", secure=secure)) as stack:
                side = Side(stack.addresses, path, stack.credentials)
                side.log_in(OPERATOR)
                asyncio.run(prepare(stack.addresses, PARTITIONS))
                yield side
        finally:
            use_security(None)


def _rate(side: Side, events: int) -> float:
    """Return the events/s of a worker that drains a backlog."""
    side.log_in(EXECUTOR)
    records = asyncio.run(produce(side.addresses.kafka, frames(events, 1)))
    side.log_in(OPERATOR)
    login = side.login("thresholds")
    return threshold_agent(side.addresses, side.folder, records, login=login)


def _emit_us(side: Side) -> float:
    """Return the median µs of `emit()` in an executor with the shared shipper."""
    process = subprocess.run(
        bench_command(
            "bench.support.emit_process", "durable", side.addresses.kafka, str(EMITS), "1", "busy"
        ),
        env={
            **os.environ,
            **side.login(EXECUTOR),
            "HEADSTART_SPOOL": str(side.folder / "spool"),
            "HEADSTART_SHIPPER": "process",
        },
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=True,
    )
    return quantile(json.loads(process.stdout), 0.5) / 1000
