"""Apache Kafka as the broker: one node, combined broker and controller, on 127.0.0.1.

Its log is in `<data>/kafka` and survives a restart. The jars come from `kafka_jars.py`. The fault
rounds make a cluster of several (`ClusterMember`).
"""

import os
import re
import shutil
import signal
import subprocess
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path

from deploy.local import readiness
from deploy.local.child_process import AT_ONCE, Child, Ending
from deploy.local.errors import StackError
from deploy.local.kafka_jars import kafka_jars
from deploy.local.ports import HOST, Ports
from deploy.local.process_group import ProcessGroup
from deploy.local.secure.servers import SecuredBroker
from deploy.process_priority import FOREGROUND

_NAME = "broker"
_OLDEST_JAVA = 17
_FORMAT_SECONDS = 60.0
_READY_SECONDS = 90.0
# SIGTERM closes the log segments; otherwise the next start has to recover them.
_ENDING = Ending(ask=signal.SIGTERM, insist=signal.SIGKILL, orphaned=signal.SIGTERM)
# Paths are relative to the server's directory, so that none needs escaping. Short sessions and
# small segments shorten the restart of a killed broker: it can register again only when its last
# session has timed out, and recovers every segment that was not full.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=log
log.segment.bytes=67108864
broker.heartbeat.interval.ms=1000
broker.session.timeout.ms=3000
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
_LOGGING = """\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c{1})%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
"""

_JAVA_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",  # saves half a second of three at the start
    "-Dlog4j2.configurationFile=log4j2.properties",
)
_UNOPTIMISED = "-XX:TieredStopAtLevel=1"
"""In the first half minute the optimising compiler took more of two cores than the broker's own
work. TLS needs it: only its code uses the processor's instructions for AES, and without them a
broker encrypted 20 MB/s."""


@dataclass(frozen=True)
class ClusterMember:
    """What one broker of a cluster is started with, unlike one that is alone."""

    cluster: str
    """The id of the cluster, from `new_cluster_id`."""
    properties: str
    """Lines of `server.properties`; they replace those above of the same name."""
    java_options: tuple[str, ...] = ()
    """They replace others of the same name."""
    ending: Ending = _ENDING


class Apache:
    """The broker as a service of the stack."""

    def __init__(
        self,
        group: ProcessGroup,
        ports: Ports,
        port: int,
        member: ClusterMember | None = None,
        secured: SecuredBroker | None = None,
    ) -> None:
        self._member = member or ClusterMember(new_cluster_id(), "")
        self._secured = secured
        self._group = group
        self._ports = ports
        self._wanted = port
        self._home = group.data / "kafka"
        self._port = 0
        self._java: list[str] = []
        self._format: Child | None = None
        self.server: Child | None = None
        """Its process, None before `launch`."""

    def prepare(self) -> None:
        """Download Kafka if it is not cached, and format its log on the first start."""
        self._port = self._ports.reserve("Kafka", self._wanted)
        controller = self._ports.reserve("Kafka controller")
        self._group.claim(_NAME)
        java = _java()
        jars = kafka_jars(self._group, _NAME)
        self._home.mkdir(exist_ok=True)
        where = {"host": HOST, "port": self._port, "controller": controller}
        properties = _PROPERTIES.format(**where) + self._member.properties
        if self._secured is not None:
            internal = self._ports.reserve("Kafka internal")
            properties += self._secured.properties(self._port, controller, internal)
        (self._home / "server.properties").write_text(properties)
        (self._home / "log4j2.properties").write_text(_LOGGING)
        options = _JAVA_OPTIONS if self._secured else (*_JAVA_OPTIONS, _UNOPTIMISED)
        self._java = [java, *options, *self._member.java_options, "-cp", f"{jars}/*"]
        if not self._formatted.exists():
            shutil.rmtree(self._home / "log", ignore_errors=True)  # an incomplete, unused one
            # With the equals sign an id that begins with a dash is not taken for an option.
            cluster = f"--cluster-id={self._member.cluster}"
            words = ["format", cluster, "--config", "server.properties"]
            if self._secured is not None:
                words += self._secured.format_words(self._home)
            self._format = self._run("kafka.tools.StorageTool", words, AT_ONCE)

    def launch(self) -> None:
        """Finish formatting and start the server."""
        if self._format is not None:
            self._format.finish(_FORMAT_SECONDS)
            self._group.forget(self._format)
            self._format = None
            self._formatted.touch()
            if self._secured is not None:
                self._secured.formatted(self._home)
        self.server = self._run("kafka.Kafka", ["server.properties"], self._member.ending)

    def ready(self) -> str:
        """Wait until it answers a metadata request; return its address."""
        assert self.server is not None
        address = f"{HOST}:{self._port}"
        probe = readiness.kafka if self._secured is None else self._secured.probe
        readiness.wait(self.server, lambda: probe(address), address, _READY_SECONDS)
        return address

    @property
    def _formatted(self) -> Path:
        return self._home / "formatted"

    def _run(self, program: str, words: list[str], ending: Ending) -> Child:
        argv = [*self._java, program, *words]
        return self._group.spawn(_NAME, argv, ending, cwd=self._home, niceness=FOREGROUND)


def new_cluster_id() -> str:
    """Return a random id, as `kafka-storage random-uuid` does."""
    return urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise StackError(f"Apache Kafka needs Java, and there is no java {where}: {_REMEDY}")
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', result.stderr)
    if found is None or int(found.group(1)) < _OLDEST_JAVA:
        raise StackError(f"{java} is too old for Apache Kafka: {_REMEDY}")
    return java


_REMEDY = (
    f"install Java {_OLDEST_JAVA} or newer, use the embedded broker, or give the address of one"
)
