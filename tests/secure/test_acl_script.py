"""The script of `headstart topics acl`, run with Kafka's own `kafka-acls.sh` on the broker."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeAclsRequest

from cli.system.acl_output import printed_rights
from deploy.access.kafka_acl_requests import acls_of
from deploy.access.rights import Right, rights
from deploy.local.kafka_jars import kafka_jars
from deploy.local.process_group import ProcessGroup
from tests.processes import ENVIRONMENT
from tests.secure.broker import PASSWORD, USER, Listeners
from tests.secure.certificates import Certificates

USERS: Final = {"executor": "trial-executor", "history": "CN=trial history,O=Acme"}
"""Two processes with all that a command has: several operations, topics, a group. One is named as
the subject of a certificate."""
OPERATIONS: Final = {3: "Read", 4: "Write", 8: "Describe", 10: "DescribeConfigs"}
RESOURCES: Final = {2: "topic", 3: "group"}
LITERAL, ALLOW, ANY, MATCH = 3, 3, 1, 1
TOOL: Final = """#!/bin/sh
exec java -Xshare:auto -XX:TieredStopAtLevel=1 -cp '{jars}/*' org.apache.kafka.tools.AclCommand "$@"
"""
"""What Apache's `kafka-acls.sh` runs, without its settings of a log."""


@pytest.fixture
def tool(listeners: Listeners, certificates: Certificates, tmp_path: Path) -> Path:
    """A folder with kafka-acls.sh, and the file of an administrator's login for it."""
    group = ProcessGroup(tmp_path)
    try:
        group.claim("tools")
        jars = kafka_jars(group, "tools", "kafka-tools")
    finally:
        group.close()
    script = tmp_path / "kafka-acls.sh"
    script.write_text(TOOL.format(jars=jars))
    script.chmod(0o755)
    (tmp_path / "admin.properties").write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{PASSWORD}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.pem('ca')}\n"
    )
    return tmp_path


async def acls(kafka: str, user: str) -> set[tuple[str, str, str]]:
    """The operations that the broker allows a user, with kind and name of what they are for."""
    client = AIOKafkaClient(bootstrap_servers=kafka)
    await client.bootstrap()
    try:
        request: Any = DescribeAclsRequest(ANY, None, MATCH, f"User:{user}", None, ANY, ANY)  # type: ignore[arg-type]
        answer = await client.send(client.get_random_node(), request)
    finally:
        await client.close()
    assert answer.error_code == 0, answer
    found = set()
    for kind, name, pattern, rules in answer.resources:
        assert pattern == LITERAL
        for principal, host, operation, permission in rules:
            assert (principal, host, permission) == (f"User:{user}", "*", ALLOW)
            found.add((OPERATIONS[operation], RESOURCES[kind], name))
    return found


def test_the_script_adds_what_the_table_says_and_nothing_else(
    listeners: Listeners, tool: Path
) -> None:
    granted: list[Right] = rights(only=USERS)
    script = printed_rights("kafka", granted, USERS, listeners.sasl, "")
    ended = subprocess.run(
        ["sh", "-e", "-c", script],
        env={**ENVIRONMENT, "PATH": f"{tool}:{ENVIRONMENT['PATH']}"},
        cwd=tool,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for user in USERS.values():
        of_user = {
            tuple(each[1:]) for each in acls_of(granted, USERS) if each.principal == f"User:{user}"
        }
        assert len(of_user) >= 3
        assert asyncio.run(acls(listeners.internal, user)) == of_user
