"""Every way to connect to Kafka, what is refused, and what the message says then."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError

from headstart.connections.kafka_connections import client_options, new_consumer
from headstart.connections.kafka_security import KafkaSecurity, described_security
from headstart.connections.own_security import use_security
from headstart.connections.properties import security_in
from headstart.kafka_producer import BrokerUnreachable, require_broker, start_producer
from tests.secure.broker import PASSWORD, USER, Listeners
from tests.secure.certificates import Certificates
from topics.catalogue import EVENTS
from topics.kafka.admin import create_topics

Options = Callable[..., dict[str, str]]


@pytest.fixture
def scram(certificates: Certificates) -> Options:
    """Options of a login that succeeds, some of them replaced."""
    right = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
        "ssl_ca": str(certificates.pem("ca")),
    }
    return lambda **other: {**right, **other}


@pytest.fixture
def mtls(certificates: Certificates) -> Options:
    def options(name: str = "worker") -> dict[str, str]:
        return {
            "ssl_ca": str(certificates.pem("ca")),
            "ssl_cert": str(certificates.pem(name)),
            "ssl_key": str(certificates.key(name)),
        }

    return options


async def round_trip(kafka: str, security: KafkaSecurity) -> bytes:
    """Send a record with one client and read it with another, both logged in."""
    use_security(security)
    await create_topics(kafka, 4, topics=[EVENTS])
    producer = await start_producer(kafka)
    try:
        sent = await producer.send_and_wait(EVENTS.name, b"{}", key=b"k")
    finally:
        await producer.stop()
    consumer = new_consumer(kafka, enable_auto_commit=False)
    await consumer.start()
    try:
        at = TopicPartition(EVENTS.name, sent.partition)
        consumer.assign([at])
        consumer.seek(at, sent.offset)
        async with asyncio.timeout(60):
            found: bytes = (await consumer.getone()).value
        return found
    finally:
        await consumer.stop()


@pytest.mark.parametrize(
    ("listener", "other"),
    [
        ("sasl", {}),
        ("sasl", {"sasl_mechanism": "SCRAM-SHA-256"}),
        ("sasl", {"sasl_mechanism": "PLAIN"}),
        ("bare", {"security_protocol": "SASL_PLAINTEXT"}),
    ],
)
def test_a_password_logs_in(
    listeners: Listeners, scram: Options, listener: str, other: dict[str, str]
) -> None:
    security = described_security(scram(**other))
    assert asyncio.run(round_trip(getattr(listeners, listener), security)) == b"{}"


def test_a_certificate_logs_in(listeners: Listeners, mtls: Options) -> None:
    assert asyncio.run(round_trip(listeners.mtls, described_security(mtls()))) == b"{}"


def test_a_java_properties_file_logs_in(
    listeners: Listeners, certificates: Certificates, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# of the Java client\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="{USER}" password="{PASSWORD}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.pem('ca')}\n"
    )
    assert asyncio.run(round_trip(listeners.sasl, security_in(file))) == b"{}"


@pytest.mark.parametrize(
    ("listener", "other", "says"),
    [
        ("sasl", {"sasl_password": "wrong"}, "it refuses the login by SCRAM-SHA-512"),
        ("sasl", {"sasl_username": "stranger"}, "it refuses the login by SCRAM-SHA-512"),
        ("bare", {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
         "it does not offer the login PLAIN"),
        ("sasl", {"security_protocol": "PLAINTEXT"}, "closes the connection without an answer"),
        ("sasl", {"security_protocol": "SASL_PLAINTEXT"}, "closes the connection without an"),
        ("internal", {}, "it does not speak TLS"),
        ("mtls", {"security_protocol": "SSL"}, "it wants a certificate of this client"),
        ("mtls", {}, "it wants a certificate of this client"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_cause(
    listeners: Listeners, scram: Options, listener: str, other: dict[str, str], says: str
) -> None:
    use_security(described_security(scram(**other)))
    message = refused(getattr(listeners, listener))
    assert says in message
    assert "HEADSTART_KAFKA_" in message
    assert PASSWORD not in message


def refused(kafka: str) -> str:
    with pytest.raises(BrokerUnreachable) as caught:
        asyncio.run(asyncio.wait_for(require_broker(kafka), 60))
    assert caught.value.trouble is not None
    return str(caught.value)


def test_a_certificate_of_another_ca_is_refused(
    listeners: Listeners, scram: Options, mtls: Options, certificates: Certificates
) -> None:
    use_security(described_security(scram(ssl_ca=str(certificates.pem("stranger")))))
    assert "not signed by a trusted CA; name the CA's PEM file" in refused(listeners.sasl)
    use_security(described_security(mtls("intruder")))
    assert "refuses the certificate of this client" in refused(listeners.mtls)


@pytest.fixture
def impostor(certificates: Certificates) -> Iterator[Callable[[str], str]]:
    """A TLS server with a certificate of its own; it only shakes hands."""
    import ssl

    servers = []

    def start(name: str) -> str:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates.pem(name), certificates.key(name))
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                    context.wrap_socket(connection, server_side=True).close()
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("hosts", "days", "says"),
    [
        ("IP:127.0.0.1", -1, "has expired"),
        ("DNS:elsewhere.invalid", 2, "is for another host name"),
    ],
)
def test_a_servers_certificate_is_checked(
    impostor: Callable[[str], str],
    certificates: Certificates,
    scram: Options,
    hosts: str,
    days: int,
    says: str,
) -> None:
    certificates.sign("impostor", hosts=hosts, days=days)
    use_security(described_security(scram()))
    assert says in refused(impostor("impostor"))


def test_a_replaced_password_and_certificate_are_used_by_the_next_connection(
    listeners: Listeners, scram: Options, certificates: Certificates, tmp_path: Path
) -> None:
    """One client lives through both: its files are read for each connection."""
    password = tmp_path / "password"
    password.write_text("of yesterday\n")
    certificates.sign("renewed", ca="stranger")
    options = scram(
        sasl_password="",
        sasl_password_file=str(password),
        ssl_cert=str(certificates.pem("renewed")),
        ssl_key=str(certificates.key("renewed")),
    )
    use_security(described_security(options))

    async def renew() -> None:
        client = AIOKafkaClient(bootstrap_servers=listeners.sasl, **client_options())
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
            await client.bootstrap()
        password.write_text(f"{PASSWORD}\n")
        certificates.sign("renewed")
        await client.bootstrap()
        await client.close()

    asyncio.run(renew())
