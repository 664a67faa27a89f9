"""An address of a broker with a user or password is refused, and nothing of it is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headstart import Emitter
from headstart.arguments.checks import InvalidArgument
from headstart.kafka_producer import require_broker
from headstart.shipping.process import ship

WITH_CREDENTIALS = ("user:hush@broker:9092", "broker:9092,u:hush@b:1", "SASL_SSL://u:hush@b:1")


def emitter(kafka: Any) -> object:
    return Emitter(kafka, durable=False)


def ships(kafka: Any) -> object:
    return ship(Path("not-made"), kafka=kafka, drain=True)


def requires(kafka: Any) -> None:
    asyncio.run(require_broker(kafka))


@pytest.mark.parametrize("call", [emitter, ships, requires])
@pytest.mark.parametrize("kafka", WITH_CREDENTIALS)
def test_credentials_are_refused(
    call: Callable[[Any], object], kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="user and password are not supported") as caught:
        call(kafka)
    assert "hush" not in str(caught.value)
    assert not (tmp_path / "not-made").exists()


def test_a_list_with_credentials_is_not_repeated_either() -> None:
    with pytest.raises(InvalidArgument) as caught:
        emitter(["user:hush@broker:9092"])
    assert "hush" not in str(caught.value)
