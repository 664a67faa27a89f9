"""Crash reports hold no secret: tracebacks, dumps of faulthandler, logs, spools, arguments.

A process crashes where an audit event of Python happens (`CRASH`, below), with an error whose text
has every secret.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Final

import pytest

from headstart.spool.locks import noted_shipper, open_lock
from settings.secret_files import MAY_HOLD_SECRETS
from tests.patience import PATIENCE_S, until
from tests.processes import ENVIRONMENT, command_line

Crash = tuple[str, str, str]
"""An audit event, what must be among its arguments, and `raise` or `abort`."""
AT: Final = "127.0.0.1:1"
"""Nothing listens there."""
SECRETS: Final = {
    "postgres": f"postgresql://ann:canary-postgres@{AT}/db",
    "redis": f"redis://ann:canary-redis@{AT}/0",
    "kafka_sasl_password": "canary-sasl",
    "kafka_ssl_key_password": "canary-key-password",
    "kafka_oauth_client_secret": "canary-oauth",
    "operators_key": "canary-operators",
    "embedding_url": f"http://{AT}/v1?api-key=canary-embedding-url",
    "embedding_key": "canary-embedding-key",
    "encryption_key": "a:" + b64encode(b"canary-encryption".ljust(32)).decode(),
    "hash_key": "canary-hash-key-of-16",
}
CANARIES: Final = ("canary", b64encode(b"canary-encryption").decode()[:20])
VARIABLES: Final = {
    **{f"HEADSTART_{name.upper()}": value for name, value in SECRETS.items()},
    "HEADSTART_KAFKA": AT,
    "HEADSTART_KAFKA_SASL_MECHANISM": "PLAIN",
    "HEADSTART_KAFKA_SASL_USERNAME": "ann",
    "HEADSTART_KAFKA_OAUTH_TOKEN_URL": f"https://{AT}/token",
    "HEADSTART_KAFKA_OAUTH_CLIENT_ID": "agent",
    "HEADSTART_EMBEDDING_MODEL": "model",
    "HEADSTART_LOG_LEVEL": "debug",
    "HEADSTART_SHIPPER": "process",
    "PYTHONFAULTHANDLER": "1",
}
CRASH: Final = """
import json, os, sys
wanted, about, how, who = json.loads(os.environ.get("CRASH", "[0, 0, 0, 0]"))
if who and who in " ".join(sys.orig_argv):
    text = " ".join(value for name, value in os.environ.items() if "HEADSTART" in name)
    def crash(event, arguments):
        if event == wanted and about in repr(arguments):
            if how == "abort":
                os.abort()
            raise RuntimeError("crashed with " + text)
    sys.addaudithook(crash)
"""
"""`sitecustomize`, which each Python process imports at its start."""
EXECUTOR: Final = """
import os, sys
from headstart import Emitter, Thresholds
from headstart.connections.own_security import own_security
with Emitter(os.environ["HEADSTART_KAFKA"], spool=sys.argv[1]) as emitter:
    with Thresholds(os.environ["HEADSTART_REDIS"]) as thresholds:
        thresholds.get(workflow_type="refund", tenant="acme")
        emitter.emit(event_type="task_complete", workflow_type="refund", workflow_id="w")
        print("emitted", flush=True)
        if sys.argv[2] == "abort":
            os.abort()
        raise RuntimeError(f"crashed with {emitter!r} {thresholds!r} {own_security()!r}")
"""


WORK: Final = """
import os, threading
from agents.fatal import exit_fatally
from cli.support.logs import configure_worker_logs
from cli.support.output import report_errors
text = " ".join(value for name, value in os.environ.items() if "HEADSTART" in name)
def crash():
    raise RuntimeError("crashed with " + text)
def work():
    configure_worker_logs()
    thread = threading.Thread(target=crash)
    thread.start()
    thread.join()
    try:
        crash()
    except RuntimeError as error:
        exit_fatally("partition 0", error)
report_errors(work)
"""
"""Fails as workers do in their work: in a thread, and where they cannot continue."""


def environment(folder: Path, crash: Crash | None = None, of: str = "cli") -> dict[str, str]:
    """The variables of a process. `of`: crashes if this is among its arguments."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(CRASH)
    found = {
        **ENVIRONMENT,
        **VARIABLES,
        "PYTHONPATH": str(folder / "site"),
        "HEADSTART_DATA": str(folder / "data"),
        "HEADSTART_SPOOL": str(folder / "spool"),
    }
    return found if crash is None else found | {"CRASH": json.dumps([*crash, of])}


def run(words: list[str], folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """Run a process to its end; return its exit code and output. Its arguments are looked at."""
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(words, env=variables, cwd=folder, stdout=file, stderr=file)
        require_no_secret(Path(f"/proc/{process.pid}/cmdline").read_text(), "its arguments")
        try:
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
    return code, output.read_text()


def require_no_secret(text: str, where: object) -> None:
    assert not [line for line in text.splitlines() if any(each in line for each in CANARIES)], where


def require_no_secret_in_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "site":
            require_no_secret(path.read_text(errors="replace"), path)


def test_every_kind_of_secret_is_set() -> None:
    assert SECRETS.keys() == (MAY_HOLD_SECRETS - {"kafka"}) | {"hash_key"}
    for value in SECRETS.values():
        assert any(each in value for each in CANARIES), value


CASES: Final[dict[str, tuple[str, Crash, int]]] = {
    "a command": ("thresholds list", ("socket.connect", "127.0.0.1", "raise"), 1),
    "a command by faulthandler": ("thresholds list", ("socket.connect", "127.0.0.1", "abort"), -6),
    "a command before it connects": ("migrate", ("import", "sinks.postgres.migrate", "raise"), 1),
    "the start of a worker": ("worker memory", ("import", "agents.worker", "raise"), 1),
    "a worker": ("worker memory", ("open", "progress.new", "raise"), 1),
    "a worker by faulthandler": ("worker memory", ("import", "agents.memory.main", "abort"), -6),
    "the child of a worker": ("worker memory --watched", ("import", "agents.worker", "raise"), 1),
}
"""The command, where it crashes, and the exit code."""


@pytest.mark.parametrize(("name", "form"), list(zip(CASES, cycle(("text", "json")), strict=False)))
def test_a_crash_of_a_process_of_ours(name: str, form: str, tmp_path: Path) -> None:
    """Each case with one form of log lines: `test_a_worker_that_cannot_continue` has both."""
    words, crash, wanted = CASES[name]
    variables = environment(tmp_path, crash) | {"HEADSTART_LOG_FORMAT": form}
    variables["HEADSTART_DEBUG"] = "1"
    code, output = run(command_line(*words.split()), tmp_path, variables)
    assert code == wanted, output
    crashed = "Fatal Python error: Aborted" if crash[2] == "abort" else "crashed with"
    assert crashed in output
    assert "***" in output or crash[2] == "abort", output
    require_no_secret_in_files(tmp_path)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_worker_that_cannot_continue(form: str, tmp_path: Path) -> None:
    variables = environment(tmp_path) | {"HEADSTART_LOG_FORMAT": form}
    code, output = run([sys.executable, "-c", WORK], tmp_path, variables)
    assert code == 70, output
    assert "Exception in thread" in output
    assert "worker.failed" in output
    assert output.count("RuntimeError: crashed with ") > 1
    require_no_secret_in_files(tmp_path)


@pytest.mark.parametrize("how", ["raise", "abort"])
def test_a_crash_of_an_executor(how: str, tmp_path: Path) -> None:
    """Its own error has what our objects show of themselves."""
    spool = tmp_path / "spool"
    words = [sys.executable, "-c", EXECUTOR, str(spool), how]
    code, output = run(words, tmp_path, environment(tmp_path))
    assert code == {"raise": 1, "abort": -signal.SIGABRT}[how], output
    assert "emitted" in output
    assert list(spool.rglob("spool.json"))
    end_shipper(spool)
    require_no_secret_in_files(tmp_path)


def test_a_crash_of_the_shared_shipper(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    variables = environment(tmp_path, ("socket.connect", "127.0.0.1", "raise"), "detach")
    _code, output = run([sys.executable, "-c", EXECUTOR, str(spool), "raise"], tmp_path, variables)
    log = spool / "shipper.log"
    until(lambda: log.exists() and "crashed with" in log.read_text(), seen=lambda: output)
    assert "***" in log.read_text()
    end_shipper(spool)
    require_no_secret_in_files(tmp_path)


def end_shipper(spool: Path) -> None:
    """End the shared process that the executor has started, if it still runs."""
    lock = open_lock(spool)
    try:
        process = noted_shipper(lock)
        if process and str(spool) in Path(f"/proc/{process}/cmdline").read_text():
            os.kill(process, signal.SIGKILL)
    finally:
        os.close(lock)
