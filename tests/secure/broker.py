"""Apache Kafka with a listener for each way to log in, and an authorizer, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local.apache_kafka import _JAVA_OPTIONS, _LOGGING, _java
from deploy.local.child_process import AT_ONCE, Ending
from deploy.local.kafka_jars import kafka_jars
from deploy.local.ports import HOST, Ports
from deploy.local.process_group import ProcessGroup
from headstart.connections.kafka_connections import open_connection
from tests.chaos.proxy import Proxy
from tests.secure.certificates import Certificates

USER, PASSWORD = "alice", "canary-kafka-secret"
_LISTENERS = {
    "SASL": "SASL_SSL", "BARE": "SASL_PLAINTEXT", "MTLS": "SSL", "OAUTH": "SASL_SSL",
    "PASSWORDS": "SASL_SSL", "CERTIFICATES": "SSL",
}  # fmt: skip
_CUT = ("PASSWORDS", "CERTIFICATES")
"""Listeners behind a proxy, for tests that change logins and end all connections."""
ROTATING = ("rotating-0", "rotating-1")
"""Users for those tests, without a password at first."""
SESSION_MS = 4_000
"""After so long the broker ends a connection whose client has not renewed its login (KIP-368), as
aiokafka never does. Only connections of OAUTH."""
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners={listeners},INTERNAL://{host}:{internal},CONTROLLER://{host}:{controller}
advertised.listeners={advertised},INTERNAL://{host}:{internal}
listener.security.protocol.map={protocols},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INTERNAL
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller}
listener.name.sasl.sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN
listener.name.sasl.scram-sha-512.sasl.jaas.config={scram}
listener.name.sasl.scram-sha-256.sasl.jaas.config={scram}
listener.name.sasl.plain.sasl.jaas.config={plain}
listener.name.bare.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.bare.scram-sha-512.sasl.jaas.config={scram}
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config={oauth}
listener.name.oauth.oauthbearer.connections.max.reauth.ms={session_ms}
listener.name.mtls.ssl.client.auth=required
listener.name.passwords.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.passwords.scram-sha-512.sasl.jaas.config={scram}
listener.name.certificates.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:{user};User:ANONYMOUS;User:CN=worker;User:executor;{rotating}
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
log.dirs=log
broker.heartbeat.interval.ms=1000
broker.session.timeout.ms=3000
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
_ENDING = Ending(signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)
_READY_S = 120.0


@dataclass(frozen=True)
class Listeners:
    """The addresses, by what they want; `internal` speaks plain text.

    `proxies`: before `passwords` (SCRAM) and `certificates`, by these names.
    """

    sasl: str
    bare: str
    mtls: str
    oauth: str
    passwords: str
    certificates: str
    internal: str
    proxies: Mapping[str, Proxy]


def start_broker(
    group: ProcessGroup, ports: Ports, certificates: Certificates, limited: Mapping[str, str]
) -> Listeners:
    """Start the broker in the folder of `group`; return when it answers.

    `limited`: passwords of the users that its ACLs bind. The others are super users: `USER`, the
    certificate of the tests' workers, OAuth's client, and all of plain text.
    """
    group.claim("broker")
    jars = kafka_jars(group, "broker")
    at = {name: f"{HOST}:{ports.reserve(name)}" for name in _LISTENERS}
    internal, controller = ports.reserve("internal"), ports.reserve("controller")
    proxies = {name: Proxy(int(at[name].rpartition(":")[2])) for name in _CUT}
    advertised = {**at, **{name: f"{HOST}:{each.port}" for name, each in proxies.items()}}
    _write(group.data, at, advertised, internal, controller, certificates)
    java = [_java(), *_JAVA_OPTIONS, "-cp", f"{jars}/*"]
    words = ["format", "--cluster-id=5L6g3nShT-eMCtK--X86sw", "--config", "server.properties"]
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
        words += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
    for user, password in limited.items():
        words += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]
    formatting = group.spawn(
        "broker", [*java, "kafka.tools.StorageTool", *words], AT_ONCE, cwd=group.data
    )
    formatting.finish(_READY_S)
    group.forget(formatting)
    server = group.spawn(
        "broker", [*java, "kafka.Kafka", "server.properties"], _ENDING, cwd=group.data
    )
    group.launched()
    deadline = time.monotonic() + _READY_S
    while not asyncio.run(_answers(internal)):
        assert server.alive, server.failure(server.outcome)
        assert time.monotonic() < deadline, "the broker does not answer"
        time.sleep(0.1)
    ports.release()
    return Listeners(
        **{name.lower(): each for name, each in advertised.items()},
        internal=f"{HOST}:{internal}",
        proxies={name.lower(): each for name, each in proxies.items()},
    )


def _write(
    folder: Path,
    at: dict[str, str],
    advertised: dict[str, str],
    internal: int,
    controller: int,
    certificates: Certificates,
) -> None:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required "
    plain += f'user_{USER}="{PASSWORD}";'
    text = _PROPERTIES.format(
        listeners=",".join(f"{name}://{each}" for name, each in at.items()),
        advertised=",".join(f"{name}://{each}" for name, each in advertised.items()),
        protocols=",".join(f"{name}:{protocol}" for name, protocol in _LISTENERS.items()),
        host=HOST,
        internal=internal,
        controller=controller,
        user=USER,
        rotating=";".join(f"User:{each}" for each in ROTATING),
        scram=_SCRAM,
        plain=plain,
        oauth=_OAUTH,
        session_ms=SESSION_MS,
        keystore=certificates.keystore,
        ca=certificates.pem("ca"),
    )
    (folder / "server.properties").write_text(text)
    (folder / "log4j2.properties").write_text(_LOGGING)


async def _answers(port: int) -> bool:
    try:
        connection = await open_connection(HOST, port, request_timeout_ms=2000)
    except Exception:
        return False
    connection.close()
    return True
