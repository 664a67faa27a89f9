"""`python -m tests.compose`: builds the image, runs docker-compose.yml, and breaks it on purpose.

Needs Docker with a daemon on this machine. Prints what it measured as JSON; without an engine it
prints one line that begins with `skipped`, and ends with 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.compose import steps
from tests.compose.engine import EngineFailed, Project, missing
from tests.compose.load import Load


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compose", description=__doc__)
    parser.add_argument("--events-per-s", type=float, default=1_000.0)
    parser.add_argument(
        "--fresh-s", type=float, default=30.0, help="most after kill -9 of a worker [default: 30]"
    )
    chosen = parser.parse_args()
    if lacks := missing():
        print(f"skipped: make test-compose needs a container engine: {lacks}")
        return 0
    begun = time.monotonic()
    project = Project()
    with tempfile.TemporaryDirectory(prefix="headstart-compose-") as folder:
        load = Load(project.addresses, Path(folder))
        try:
            found = measure(project, load, Path(folder), chosen)
        finally:
            load.close()
            with suppress(EngineFailed):
                project.compose("down", "--volumes", "--timeout", "5")
    print(json.dumps({**found, "seconds": round(time.monotonic() - begun)}, indent=2))
    return 0


def measure(
    project: Project, load: Load, folder: Path, chosen: argparse.Namespace
) -> dict[str, Any]:
    """Run every step; return the figures. Raises `AssertionError`."""
    found: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        found[name] = value
        echo(f"{name}: {value}")

    with suppress(EngineFailed):  # of a run that was interrupted
        project.compose("down", "--volumes")
    note("build_s", steps.timed(lambda: project.compose("build")))
    up = ("up", "-d", "--wait", *steps.SERVICES, *steps.WORKERS)
    note("healthy_s", steps.timed(lambda: project.compose(*up)))
    steps.compiled(project)
    note("demo_s", steps.timed(lambda: steps.demo(project, folder)))  # waits until all is taken in
    load.start(chosen.events_per_s)
    note("faults", steps.kill_each(project, load, chosen.fresh_s, echo))
    note("stuck_restarted_s", steps.stop_worker(project, "history"))
    load.stop()
    checked = load.check()
    note("checked", asdict(checked))
    assert checked.ok
    steps.all_healthy(project)
    note("memory", steps.confined(project))
    note("foreign_folder", steps.foreign_folder(folder))
    note("restart", steps.same_after_restart(project, load, checked))
    return found


def echo(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
