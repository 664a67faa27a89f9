"""Users of Kafka and Redis and a role of Postgres for each process, as `topics acl` limits them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

from psycopg.conninfo import make_conninfo
from redis import Redis

from cli.system.acl_output import printed_rights
from deploy.access.kafka_acl_requests import Acl, add_acls
from deploy.access.rights import IDENTITIES, rights
from deploy.local import Addresses
from headstart.connections.kafka_security import UNSECURED, KafkaSecurity, described_security
from tests.processes import ENVIRONMENT
from tests.secure.broker import Listeners
from tests.secure.certificates import Certificates
from topics.catalogue import Topic
from topics.kafka.admin import create_topics

SPANS_TOPIC: Final = "otlp_spans"
PASSWORD: Final = "canary-acl-secret"
REDIS_PASSWORD: Final = "canary-redis-secret"
USERS: Final = {identity: f"headstart-{identity}" for identity in IDENTITIES}
"""As `topics acl` names them."""
WORKER: Final = "worker"
"""A user of Redis that several processes share."""
STRANGER: Final = "headstart-stranger"
"""A user that nothing was granted."""
OTHERS: Final = "others"
"""A topic, and a group, of another system."""
_ROLES: Final = {
    "episodes": "headstart_sink",
    "history": "headstart_sink",
    "memory": "headstart_worker",
    "operator": "postgres",
}
_TOOL: Final = """#!{python}
import argparse, json
parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("--bootstrap-server", "--command-config", "--allow-principal"):
    parser.add_argument(name, required=True)
parser.add_argument("--add", action="store_true", required=True)
for name in ("--operation", "--topic", "--group"):
    parser.add_argument(name, action="append", default=[])
given = parser.parse_args()
with open({out!r}, "a") as file:
    print(json.dumps(vars(given)), file=file)
"""
"""Writes down the options of kafka-acls.sh: a JVM for each command would take too long."""


class Identities:
    """Logins of the processes; makes the rights in Kafka and Redis."""

    def __init__(
        self, listeners: Listeners, plain: Addresses, certificates: Certificates, folder: Path
    ) -> None:
        self._plain, self._certificates = plain, certificates
        self._folder = folder
        self.kafka, self.internal = listeners.sasl, listeners.internal
        others = [Topic(name, "", "", False, "delete") for name in (SPANS_TOPIC, OTHERS)]
        asyncio.run(create_topics(listeners.internal, 1, topics=others))
        asyncio.run(add_acls(listeners.internal, UNSECURED, _acls(self._kafka_acls())))
        with Redis.from_url(plain.redis) as redis:
            shared = dict.fromkeys(IDENTITIES, WORKER) | {"executor": USERS["executor"]}
            printed = self.printed("redis") + self.printed("redis", shared)
            for line in printed.splitlines():
                redis.execute_command(*line.split())
                redis.execute_command("ACL", "SETUSER", line.split()[2], f">{REDIS_PASSWORD}")

    def printed(self, form: str, users: Mapping[str, str] = USERS) -> str:
        """What `headstart topics acl --format` prints."""
        return printed_rights(form, rights(SPANS_TOPIC), users, self.internal, "kafka")

    def _kafka_acls(self) -> list[dict[str, Any]]:
        tool, out = self._folder / "kafka-acls.sh", self._folder / "acls.jsonl"
        tool.write_text(_TOOL.format(python=sys.executable, out=str(out)))
        tool.chmod(0o755)
        script = "set -e\n" + self.printed("kafka")
        environment = {**ENVIRONMENT, "PATH": f"{self._folder}:{ENVIRONMENT['PATH']}"}
        subprocess.run(["sh", "-c", script], env=environment, check=True)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def security(self, identity: str) -> KafkaSecurity:
        """How a process logs in at the broker."""
        return described_security(
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_username": USERS.get(identity, identity),
                "sasl_password": PASSWORD,
                "ssl_ca": str(self._certificates.pem("ca")),
            }
        )

    def redis(self, identity: str) -> str:
        """The URL with the user of a process."""
        at = self._plain.redis.removeprefix("redis://")
        return f"redis://{USERS[identity]}:{REDIS_PASSWORD}@{at}"

    def variables(self, identity: str) -> dict[str, str]:
        """The environment of a process."""
        return {
            "HEADSTART_KAFKA": self.kafka,
            "HEADSTART_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "HEADSTART_KAFKA_SASL_USERNAME": USERS.get(identity, identity),
            "HEADSTART_KAFKA_SASL_PASSWORD": PASSWORD,
            "HEADSTART_KAFKA_SSL_CA": str(self._certificates.pem("ca")),
            "HEADSTART_REDIS": self.redis(identity),
            "HEADSTART_POSTGRES": make_conninfo(
                self._plain.postgres, user=_ROLES.get(identity, "headstart_reader")
            ),
            "HEADSTART_SPANS_TOPIC": SPANS_TOPIC,
        }


def _acls(commands: list[dict[str, Any]]) -> Iterator[Acl]:
    for command in commands:
        for kind in ("topic", "group"):
            for name, operation in product(command[kind], command["operation"]):
                yield Acl(command["allow_principal"], operation, kind, name)
