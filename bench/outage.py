"""A million events while the broker is down: by how much executor and shipper grow.

Both are warm first: a thousand events have reached the broker, which is then stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.support.emit_process import FIELDS
from bench.support.measuring import bench_command, echo, fresh_stack, resident_mb, shipping
from headstart import Emitter

WARM: Final = 1_000
LOOK_S: Final = 0.2
SETTLE_S: Final = 5.0
PATIENCE_S: Final = 1_800.0


def run(kafka: str, count: int = 1_000_000) -> dict[str, Any]:
    """Return the figures: resident megabytes before and at most."""
    with TemporaryDirectory(prefix="headstart-bench-spool-") as spool, ExitStack() as broker:
        addresses, _folder = broker.enter_context(fresh_stack(kafka))
        argv = bench_command("bench.outage", addresses.kafka, spool, str(count))
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as executor:
            assert executor.stdin is not None
            assert executor.stdout is not None
            executor.stdout.readline()
            shipper = shipping(Path(spool))
            warm = {executor.pid: resident_mb(executor.pid), shipper: resident_mb(shipper)}
            echo(f"warm: executor {warm[executor.pid]:.1f} MB, shipper {warm[shipper]:.1f} MB")
            broker.close()
            executor.stdin.write(b"\n")
            executor.stdin.flush()
            began = time.perf_counter()
            most = _watch(executor, warm)
            seconds = time.perf_counter() - began
            executor.kill()
        with suppress(ProcessLookupError):
            os.kill(shipper, signal.SIGKILL)
        waiting = sum(file.stat().st_size for file in Path(spool).rglob("*.log"))
    names = {"executor": executor.pid, "shipper": shipper}
    figures = {f"{name}_warm_mb": round(warm[pid], 1) for name, pid in names.items()}
    grown = {f"{name}_growth_mb": round(most[pid] - warm[pid], 1) for name, pid in names.items()}
    echo(f"growth: {grown}; {waiting / 1e6:.0f} MB wait on disk")
    return {
        **figures,
        **grown,
        "spooled_mb": round(waiting / 1e6),
        "events": count,
        "seconds": round(seconds, 1),
        "broker": f"{kafka}, stopped",
        "framing": "largest resident set while the broker is gone, and for 5 s more, less the one "
        "before",
    }


def _watch(executor: subprocess.Popen[bytes], warm: dict[int, float]) -> dict[int, float]:
    """Return the largest resident set of each process until the executor is through."""
    assert executor.stdout is not None
    os.set_blocking(executor.stdout.fileno(), False)
    most = dict(warm)
    deadline = time.monotonic() + PATIENCE_S
    ends = deadline
    while time.monotonic() < ends:
        time.sleep(LOOK_S)
        most = {pid: max(largest, resident_mb(pid)) for pid, largest in most.items()}
        if ends == deadline and executor.stdout.readline():
            ends = time.monotonic() + SETTLE_S
    if ends == deadline:
        raise TimeoutError(f"the executor was not through after {PATIENCE_S:.0f} s")
    return most


def main() -> None:
    """Emit, as the process that is watched: `python -m bench.outage KAFKA SPOOL EVENTS`."""
    emitter = Emitter(sys.argv[1], spool=sys.argv[2], shipper="process")
    for _ in range(WARM):
        emitter.emit(FIELDS)
    emitter.flush(60)
    print("warm", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[3])):
        emitter.emit(FIELDS)
    print("through", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
