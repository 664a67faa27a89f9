"""Tokens that expire, an endpoint that is away for a while, and one that refuses the client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition

from headstart.connections.kafka_connections import NoToken, client_options, new_consumer
from headstart.connections.kafka_security import KafkaSecurity
from headstart.connections.own_security import use_security
from headstart.connections.properties import security_in
from headstart.emitting.emitter import Emitter
from headstart.kafka_producer import BrokerUnreachable, require_broker
from tests.patience import PATIENCE_S, until
from tests.processes import run_command
from tests.secure.broker import Listeners
from tests.secure.certificates import Certificates
from tests.secure.token_endpoint import CLIENT, SECRET, TokenEndpoint
from topics.catalogue import EVENTS
from topics.kafka.admin import create_topics
from topics.kafka.topic_states import describe_topics

LIFETIME_S = 5.0
"""The broker ends a connection when its token expires, or after `SESSION_MS`."""
EVENT_COUNT = 60
SPREAD_S = 20.0
"""For how long they are sent."""


@pytest.fixture
def endpoint(certificates: Certificates) -> Iterator[TokenEndpoint]:
    made = TokenEndpoint(certificates, LIFETIME_S)
    yield made
    made.close()


@pytest.fixture
def config(endpoint: TokenEndpoint, certificates: Certificates, tmp_path: Path) -> Path:
    return write_config(tmp_path, endpoint, certificates, SECRET)


def write_config(
    folder: Path, endpoint: TokenEndpoint, certificates: Certificates, secret: str
) -> Path:
    file = folder / "client.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={endpoint.url}\n"
        f"sasl.oauthbearer.client.id={CLIENT}\nsasl.oauthbearer.client.secret={secret}\n"
        f"ssl.ca.location={certificates.pem('ca')}\n"
    )
    return file


class Reader:
    """Consumes a topic from its end in a thread, with one consumer. `origins`: of the events."""

    def __init__(self, kafka: str, security: KafkaSecurity) -> None:
        self._kafka, self._security = kafka, security
        self.origins: list[str] = []
        self._ready, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    async def _run(self) -> None:
        consumer = new_consumer(self._kafka, self._security, enable_auto_commit=False)
        await consumer.start()
        try:
            ends = dict((await describe_topics(self._kafka, [EVENTS.name]))[EVENTS.name].end)
            consumer.assign([TopicPartition(EVENTS.name, each) for each in ends])
            for partition, end in ends.items():
                consumer.seek(TopicPartition(EVENTS.name, partition), end)
            self._ready.set()
            while not self._done.is_set():
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        self.origins += origins(orjson.loads(record.value))
        finally:
            await consumer.stop()

    def close(self) -> None:
        self._done.set()
        self._thread.join(PATIENCE_S)


def origins(found: Any) -> list[str]:
    return [str(each["origin"]) for each in (found if isinstance(found, list) else [found])]


def test_expiring_tokens_and_an_absent_endpoint_lose_nothing(
    listeners: Listeners, endpoint: TokenEndpoint, config: Path, tmp_path: Path
) -> None:
    """Producer and consumer work while their connections are ended every few seconds.

    Meanwhile the endpoint fails for longer than a connection lasts.
    """
    use_security(security_in(config))
    asyncio.run(create_topics(listeners.oauth, 4, topics=[EVENTS]))
    reader = Reader(listeners.oauth, security_in(config))
    begun = endpoint.issued
    emitter = Emitter(
        listeners.oauth, spool=tmp_path / "spool", shipper="thread", kafka_config=config
    )
    try:
        with emitter:
            for number in range(EVENT_COUNT):
                endpoint.failing = EVENT_COUNT // 3 <= number < 2 * EVENT_COUNT // 3
                emitter.emit(
                    event_type="task_complete", workflow_type="refund", workflow_id=f"w{number}"
                )
                threading.Event().wait(SPREAD_S / EVENT_COUNT)
            emitter.flush(PATIENCE_S)
            spooled = [path.read_text() for path in (tmp_path / "spool").rglob("spool.json")]
        until(lambda: len(set(reader.origins)) == EVENT_COUNT, seen=lambda: len(reader.origins))
    finally:
        reader.close()
    assert len(reader.origins) == EVENT_COUNT, "nothing twice"
    assert endpoint.issued - begun >= 3
    assert endpoint.failed >= 1
    assert spooled
    assert all(str(config) in each and SECRET not in each for each in spooled)


def test_a_wrong_client_secret_is_named_in_one_line(
    listeners: Listeners, endpoint: TokenEndpoint, certificates: Certificates, tmp_path: Path
) -> None:
    config = write_config(tmp_path, endpoint, certificates, "canary-wrong-secret")
    variables = {"HEADSTART_KAFKA": listeners.oauth, "HEADSTART_KAFKA_CONFIG": str(config)}
    ended = run_command("emit", "-", folder=tmp_path, stdin="{}\n", environment=variables)
    [line] = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert "token endpoint localhost: it answered 401; correct" in line
    assert "HEADSTART_KAFKA_OAUTH_CLIENT_SECRET" in line
    assert ended.returncode == 77
    assert endpoint.refused >= 1
    assert "canary" not in ended.stderr + ended.stdout


def test_a_corrected_client_secret_needs_no_restart(
    listeners: Listeners, endpoint: TokenEndpoint, certificates: Certificates, tmp_path: Path
) -> None:
    security = security_in(write_config(tmp_path, endpoint, certificates, "canary-wrong-secret"))
    provider = client_options(security)["sasl_oauth_token_provider"]
    with pytest.raises(NoToken, match="it answered 401"):
        asyncio.run(provider.token())
    write_config(tmp_path, endpoint, certificates, SECRET)
    assert asyncio.run(provider.token())


def test_an_absent_endpoint_is_named(
    listeners: Listeners, endpoint: TokenEndpoint, config: Path
) -> None:
    use_security(security_in(config))
    endpoint.close()
    with pytest.raises(BrokerUnreachable, match=r"token endpoint localhost: .*refused.*is tried"):
        asyncio.run(require_broker(listeners.oauth))
