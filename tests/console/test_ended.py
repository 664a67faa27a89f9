"""Why a worker ended is read from the end of its log."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from console.inspection.workers import find_workers
from processing.worker_report import REPORT_FILE

STARTS = "2026-11-26T23:21:29.138+00:00 INFO    worker.started worker=thresholds instance=0 epoch=7"
ENDS = (
    "2026-11-26T23:22:34.319+00:00 ERROR   worker.failed where=log "
    'error="LogLost: the \\"log\\" ended" traceback="agents.health.log_epoch_watch.LogLost: x"'
)
MESSAGE = "error: thresholds-0 was learned with 8 partitions, and the topic has 4"
JSON = '{"time":"t","level":"error","event":"worker.failed","where":"log","error":"LogLost: gone"}'

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "x.py", line 1, in <module>',
    "ImportError: no module named x",
]
FAULT = "error: this is a fault of Headstart; please report it with the lines above"


@pytest.mark.parametrize(
    ("lines", "trouble"),
    [
        ([STARTS, ENDS], 'has ended: LogLost: the "log" ended'),
        ([STARTS, JSON], "has ended: LogLost: gone"),
        ([STARTS, ENDS, MESSAGE], f"has ended: {MESSAGE.removeprefix('error: ')}"),
        ([ENDS, STARTS, "some other line"], "has ended"),  # it was killed
        ([STARTS, *TRACEBACK], "has ended: ImportError: no module named x"),
        ([STARTS, *TRACEBACK, "", FAULT], "has ended: ImportError: no module named x"),
        ([*TRACEBACK, STARTS], "has ended"),
        (["error: password=hushhush is wrong"], "has ended: password=*** is wrong"),
        ([], "has ended"),
    ],
)
def test_the_last_error_is_reported(tmp_path: Path, lines: list[str], trouble: str) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    worker = tmp_path / "workers/thresholds-0"
    worker.mkdir(parents=True)
    (worker / REPORT_FILE).write_text("{}")
    (worker / "worker.lock").write_text(f"{gone.pid}")
    (tmp_path / "workers/logs").mkdir()
    log = tmp_path / "workers/logs/thresholds-0.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    (found,) = find_workers(tmp_path)
    assert found.trouble == trouble
    spare = log.with_name("thresholds-0-spare.log")
    spare.write_text(f"{STARTS}\nerror: the spare's\n")
    os.utime(spare, (log.stat().st_mtime + 9,) * 2)
    (found,) = find_workers(tmp_path)
    assert found.trouble == "has ended: the spare's"


def test_a_worker_that_ends_before_it_reports_is_named(tmp_path: Path) -> None:
    logs = tmp_path / "workers/logs"
    logs.mkdir(parents=True)
    (logs / "episodes-0.log").write_text("error: setting learner: there is no policy 'x'\n")
    (logs / "episodes-0-spare.log").touch()
    (logs / "postgres.log").touch()
    os.utime(logs / "episodes-0-spare.log", (1, 1))
    (found,) = find_workers(tmp_path)
    assert (found.name, found.instance, found.running) == ("episodes", "0", False)
    assert found.trouble == "has ended: setting learner: there is no policy 'x'"
