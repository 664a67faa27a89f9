"""Ports that are taken, services that run already, services that do not."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from deploy.local import Stack, StackConfig, StackError

MakeStack = Callable[..., Stack]


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> Iterator[int]:
    """A port on which nothing can be listening: it is bound, and does not listen."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.mark.parametrize("part", ["kafka", "postgres", "redis"])
def test_a_taken_port_is_named(make: MakeStack, taken: int, part: str) -> None:
    with pytest.raises(StackError, match=f"127.0.0.1:{taken} is taken, so {part.title()}"):
        make(**{f"{part}_port": taken}).start()


def test_a_given_port_is_used_and_a_lost_one_replaced(make: MakeStack, closed: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        given = probe.getsockname()[1]
    with make(redis_port=given) as stack:
        assert stack.addresses.redis == f"redis://127.0.0.1:{given}/0"
    with socket.create_server(("127.0.0.1", given)), make() as stack:
        assert stack.addresses.redis != f"redis://127.0.0.1:{given}/0"


def test_existing_services_are_used_and_left_alone(make: MakeStack, tmp_path: Path) -> None:
    with make() as first:
        at = first.addresses
        config = StackConfig(tmp_path / "other", at.kafka, at.postgres, at.redis)
        with Stack(config) as second:
            assert second.addresses == at
            assert second.pids == {}
            assert not second.forgets
        first.check()
        with psycopg.connect(at.postgres) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_missing_services_are_named_without_passwords(
    make: MakeStack, closed: int, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{closed}"
    given = {
        "kafka": ("Kafka", at),
        "postgres": ("Postgres", f"postgresql://somebody:hush@{at}/headstart"),
        "redis": ("Redis", f"redis://:hush@{at}/0"),
    }
    here = make().start()
    known = {"kafka": here.kafka, "postgres": here.postgres, "redis": here.redis}
    for part, (name, address) in given.items():
        config = StackConfig(tmp_path / "other", **{**known, part: address})
        with pytest.raises(StackError) as caught:
            Stack(config).start()
        message = str(caught.value)
        assert message.startswith(f"{name} at "), message
        assert f"{at}" in message
        assert "start it" in message
        assert "\n" not in message
        assert "hush" not in message
    with pytest.raises(StackError, match="not of the form host:port"):
        Stack(StackConfig(tmp_path / "other", **{**known, "kafka": "embeded"})).start()
