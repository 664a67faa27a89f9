"""Readers and a publisher live on when the password in Redis, and in the file of the URL, changes.

One server, Sentinels and a cluster. Connections are ended after the change, as an operator does who
wants the old password to be of no use any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from headstart.arguments import environment
from headstart.connections.redis_logins import FileLogin
from headstart.connections.secret import UnusableSecurity
from headstart.connections.secret_variables import current_address, secret_variable
from headstart.scrubbing.masking import HIDDEN, masked
from sinks.connections import RedisUnreachable
from sinks.redis.thresholds import ThresholdPublisher
from tests.client.redis_server import Server
from tests.clusters import Cluster
from tests.lasting_clients import lasting_clients, numbered, until_read
from tests.patience import PATIENCE_S
from tests.sentinels import Sentinels

USER = "application"
MAY_ALL = ("on", "~*", "&*", "+@all")
Run = Callable[..., None]


class Service(NamedTuple):
    """`run`: runs a command at every server. `run_on_sentinel`: at the Sentinel, if there is one.

    `url`: of a password.
    """

    url: Callable[[str], str]
    run: Run
    run_on_sentinel: Run | None = None

    def change(self, password: str) -> None:
        """Give the user this password only, and end its connections."""
        for run in (self.run, self.run_on_sentinel):
            if run is not None:
                run("ACL", "SETUSER", USER, "resetpass", f">{password}", *MAY_ALL)
                run("CLIENT", "KILL", "USER", USER)


def with_user(url: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{USER}:{password}@{rest.rpartition('@')[2]}"


@pytest.fixture(params=["server", "sentinels", "cluster"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    made = request.getfixturevalue(request.param)
    if isinstance(made, Server):
        yield Service(lambda each: with_user(made.url, each), made.client.execute_command)
    elif isinstance(made, Sentinels):

        def url(password: str) -> str:
            address = with_user(made.url, password).partition("?")[0]
            return f"{address}?sentinel_username={USER}&sentinel_password={password}"

        yield Service(url, made.run_on_servers, made.run_on_sentinel)
    else:
        yield from of_cluster(made)


def of_cluster(cluster: Cluster) -> Iterator[Service]:
    def run(*command: str) -> None:
        for node in cluster.nodes:
            node.run(*command)

    yield Service(lambda each: with_user(cluster.url, each), run)
    run("ACL", "DELUSER", USER)


async def publish(publisher: ThresholdPublisher, offset: int) -> int:
    """Publish until Redis has it, as a worker does; return how often it was refused."""
    refused = 0
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await publisher.publish([numbered(offset)])
                return refused
            except RedisUnreachable:
                refused += 1
                await asyncio.sleep(0.05)


def test_a_changed_password_needs_no_restart(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "redis"
    file.write_text(service.url("password-0"))
    monkeypatch.setenv("HEADSTART_REDIS_FILE", str(file))
    service.change("password-0")
    asyncio.run(rotate(service, file, environment.redis()))


async def rotate(service: Service, file: Path, url: str) -> None:
    """All clients are made once. The file follows the server, so that logins fail in between."""
    async with lasting_clients(url) as (publisher, reads):
        for offset in range(1, 4):
            await publish(publisher, offset)
            for read in reads:
                await until_read(read, offset)
            service.change(f"password-{offset}")
            with pytest.raises(RedisUnreachable):
                await publisher.publish([numbered(offset + 1)])
            replace(file, service.url(f"password-{offset}"))


def replace(file: Path, text: str) -> None:
    """Replace a file at once, as orchestrators do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


def test_what_a_file_held_stays_in_use_while_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "redis"
    file.write_text("redis://u:canary-first@h:1/0\n")
    monkeypatch.setenv("HEADSTART_REDIS_FILE", str(file))
    first = environment.redis()
    for broken in (lambda: file.write_text(""), file.unlink):
        broken()
        assert current_address(first) == environment.redis() == first
    assert "redis is empty" in caplog.text
    assert "redis cannot be read" in caplog.text
    file.write_text("redis://u:canary-second@h:1/0\n")
    second = "redis://u:canary-second@h:1/0"
    assert current_address(first) == current_address(second) == second
    assert masked("canary-second, canary-first") == f"{HIDDEN}, {HIDDEN}"
    file.write_text("redis+sentinel://u:canary-first@")
    with pytest.raises(RedisConnectionError, match="holds no Redis URL") as raised:
        FileLogin(first).get_credentials()
    assert "canary" not in str(raised.value)


def test_the_password_of_a_connection_string_in_a_file_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "postgres"
    monkeypatch.setenv("HEADSTART_POSTGRES_FILE", str(file))
    file.write_text("host=db user=ann password=canary-third\n")
    first = secret_variable("HEADSTART_POSTGRES")
    assert first is not None
    file.write_text("host=db user=ann password='canary-fourth'\n")
    current_address(first)
    assert masked("ann: canary-third, canary-fourth") == f"ann: {HIDDEN}, {HIDDEN}"


def test_a_file_that_was_never_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_REDIS_FILE", str(tmp_path / "absent"))
    with pytest.raises(UnusableSecurity, match="absent cannot be read"):
        environment.redis()
