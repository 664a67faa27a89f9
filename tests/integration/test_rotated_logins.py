"""The passwords of Postgres and Redis change while the whole system runs on them, from files.

Each is changed in the server first, and all connections with the old one are ended; the file
follows, as a secret that an orchestrator mounts does.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from redis import Redis

from deploy.local import Addresses, Stack, StackConfig
from deploy.supervisor import Supervisor
from deploy.system import prepare
from headstart import Thresholds
from headstart.arguments import environment
from tests.integration.event_load import Load
from tests.patience import until
from tests.processes import run_command

pytestmark = [
    pytest.mark.integration,
    pytest.mark.any_broker,
    pytest.mark.plain_only(reason="the logins of its services are its own"),
]

Event = dict[str, Any]
USER = "application"
STALLED = "EventLoopStalled"
"""What ends a worker that got no CPU for a session, as on a busy machine; it is started again."""
SOME = 50
"""Events that are waited for at each step."""
TYPES = 3
WITHOUT_LOGIN_S = 2.0
"""For how long the files hold passwords that are of no use any more."""
_HBA = f"host all {USER} 127.0.0.1/32 scram-sha-256\n"
_CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s"


class Logins:
    """A user of both services, with one password at a time, and the files of their addresses."""

    def __init__(self, at: Addresses, folder: Path) -> None:
        self._at, self._data = at, folder / "host"
        self.files = {name: folder / f"{name}.secret" for name in ("postgres", "redis")}
        with psycopg.connect(at.postgres, autocommit=True) as admin:
            [hba] = (folder / "stack").rglob("pg_hba.conf")
            hba.write_text(_HBA + hba.read_text())
            admin.execute("SELECT pg_reload_conf()")
            admin.execute(f"CREATE ROLE {USER} SUPERUSER LOGIN")
        self.change("password-0")
        self.write("password-0")

    def change(self, password: str) -> None:
        """Change it in both servers, and end the connections of the user."""
        with psycopg.connect(self._at.postgres, autocommit=True) as admin:
            admin.execute(f"ALTER ROLE {USER} PASSWORD '{password}'")
            admin.execute(_CUT, [USER])
        with Redis.from_url(self._at.redis) as redis:
            may_all = ("on", "~*", "&*", "+@all")
            redis.execute_command("ACL", "SETUSER", USER, "resetpass", f">{password}", *may_all)
            redis.execute_command("CLIENT", "KILL", "USER", USER)

    def write(self, password: str) -> None:
        """Replace both files."""
        held = {
            "postgres": make_conninfo(self._at.postgres, user=USER, password=password),
            "redis": self._at.redis.replace("redis://", f"redis://{USER}:{password}@"),
        }
        for name, file in self.files.items():
            new = file.with_suffix(".new")
            new.write_text(held[name])
            new.rename(file)

    def settings(self) -> dict[str, str]:
        """The variables of a process."""
        files = {f"HEADSTART_{name.upper()}_FILE": str(each) for name, each in self.files.items()}
        return {"HEADSTART_KAFKA": self._at.kafka, "HEADSTART_DATA": str(self._data), **files}


@pytest.fixture
def at(broker: str, tmp_path: Path) -> Iterator[Addresses]:
    with Stack(StackConfig(data=tmp_path / "stack", kafka=broker)) as stack:
        asyncio.run(prepare(stack.addresses, 2))
        yield stack.addresses


@pytest.fixture
def logins(at: Addresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Logins:
    made = Logins(at, tmp_path)
    for name, value in made.settings().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def workers(logins: Logins, tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path / "host" / "workers", logins.settings())
    made.start()
    yield made
    made.stop()


def test_changed_passwords_lose_nothing_and_restart_nothing(
    at: Addresses,
    logins: Logins,
    workers: Supervisor,
    judged: Callable[..., Event],
    tenant: str,
    tmp_path: Path,
) -> None:
    messages: list[str] = []

    def read(query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(at.postgres) as connection:
            return connection.execute(query.encode(), [tenant]).fetchall()

    def stored() -> int:
        count: int = read("SELECT count(*) FROM episodic_events WHERE tenant = %s")[0][0]
        return count

    def wait(condition: Callable[[], Any]) -> None:
        until(condition, meanwhile=lambda: messages.extend(workers.check()), seen=lambda: messages)

    load = Load(
        at.kafka,
        lambda number: judged(tenant, f"type-{number % TYPES}", workflow_id=f"run-{number}"),
        pause_s=0.25,
    )
    with Thresholds(environment.redis(), timeout_s=5.0) as reader:

        def outcomes(name: str) -> int:
            found = reader.get(workflow_type=name, tenant=tenant)
            return 0 if found.stale else found.outcomes

        def more(events: int, learned: int) -> bool:
            return stored() >= events + SOME and outcomes("type-0") > learned

        try:
            for number in range(1, 4):
                wait(partial(more, stored(), outcomes("type-0")))
                logins.change(f"password-{number}")
                time.sleep(WITHOUT_LOGIN_S)
                logins.write(f"password-{number}")
        finally:
            events = load.end()
        wanted = Counter(each["workflow_type"] for each in events)
        wait(lambda: stored() >= len(events))
        wait(lambda: all(outcomes(name) == count for name, count in wanted.items()))
    ids = read("SELECT id::text FROM episodic_events WHERE tenant = %s")
    assert sorted(row[0] for row in ids) == sorted(event["id"] for event in events)
    episodes = "SELECT workflow_id FROM episodes WHERE tenant = %s"
    wait(lambda: len(read(episodes)) == len(events))
    verified = run_command(
        "verify", "--json", "--caught-up", folder=tmp_path, environment=logins.settings()
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert not [each for each in messages if STALLED not in each], "no worker ended"
    logs = "".join(each.read_text() for each in (tmp_path / "host/workers/logs").glob("*"))
    assert "the password or user is wrong" in logs
    assert "password-" not in logs
