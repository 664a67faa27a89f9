"""Writes the rights in Kafka as commands of `kafka-acls.sh`, or as Strimzi's KafkaUsers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from deploy.access.rights import KAFKA, Right

_NAME_OF_KUBERNETES: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_HEAD: Final = """\
# Rights of Headstart's users. Run it with kafka-acls.sh on PATH; ADMIN: the client.properties of a
# user in super.users. Brokers need authorizer.class.name, and allow.everyone.if.no.acl.found=false.
acls="kafka-acls.sh --bootstrap-server {kafka} --command-config ${{ADMIN:-admin.properties}} --add"
"""
_USER: Final = """\
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata:
  name: {user}
  labels:
    strimzi.io/cluster: {cluster}
spec:
  authentication:
    type: scram-sha-512
  authorization:
    type: simple
    acls:
"""
_RULE: Final = """\
      - resource:
          type: {kind}
          name: {name}
          patternType: literal
        operations: [{operations}]
"""


def kafka_commands(given: Sequence[Right], users: Mapping[str, str], kafka: str) -> str:
    """Return a shell script that adds the rights.

    `users`: the user of each identity; `kafka`: the brokers. One command adds an operation of a
    user on everything.
    """
    lines = []
    for user, of_user in _by_user(given, users).items():
        lines.append(f"# {user}")
        for operations, names in _together(of_user).items():
            words = ["--allow-principal", f"User:{user}"]
            for operation in operations:
                words += ["--operation", operation]
            for kind, name in names:
                words += [f"--{kind}", name]
            lines.append(f"$acls {shlex.join(words)}")
    return _HEAD.format(kafka=shlex.quote(kafka)) + "\n".join(lines) + "\n"


def strimzi_users(given: Sequence[Right], users: Mapping[str, str], cluster: str) -> str:
    """Return a KafkaUser for each user, as YAML.

    `cluster`: the name of the Kafka resource. Raises `ValueError` for a name that Kubernetes
    refuses.
    """
    text = ""
    for user, of_user in _by_user(given, users).items():
        for name in (user, cluster):
            if not _NAME_OF_KUBERNETES.fullmatch(name):
                raise ValueError(
                    f"{name!r:.80} cannot name a resource of Kubernetes: use lower-case letters, "
                    "digits, - and ."
                )
        text += _USER.format(user=user, cluster=cluster)
        for kind, name in dict.fromkeys((each.kind, each.name) for each in of_user):
            operations = dict.fromkeys(
                each.operation for each in of_user if (each.kind, each.name) == (kind, name)
            )
            text += _RULE.format(kind=kind, name=name, operations=", ".join(operations))
    return text


def _by_user(given: Sequence[Right], users: Mapping[str, str]) -> dict[str, list[Right]]:
    found: dict[str, list[Right]] = {}
    for each in given:
        if each.kind in KAFKA:
            found.setdefault(users[each.identity], []).append(each)
    return found


def _together(given: Sequence[Right]) -> dict[tuple[str, ...], list[tuple[str, str]]]:
    """Return the topics and groups by the operations on them."""
    of_name: dict[tuple[str, str], list[str]] = {}
    for each in given:
        operations = of_name.setdefault((each.kind, each.name), [])
        if each.operation not in operations:
            operations.append(each.operation)
    found: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name, operations in of_name.items():
        found.setdefault(tuple(operations), []).append(name)
    return found
