"""The secured stack of a test run: TEST_SECURE is `scram` or `mtls`; unset: everything is plain.

Apache Kafka with TLS, a login (SCRAM-SHA-512, or a certificate) and ACLs, Postgres and Redis with
TLS, as `headstart up --secure` starts them. All stacks of a process have the same certificates and
passwords, made when this is imported, so that one environment fits each of them. Commands and this
process log in as the operator, workers of a `System` each as itself.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest

from deploy.access.rights import EXECUTOR, OPERATOR
from deploy.local import Addresses, StackConfig, StackError, running
from deploy.local.secure.credentials import USERS, Credentials
from deploy.local.secure.programs import require_programs
from headstart.connections.kafka_connections import client_options
from headstart.connections.kafka_security import UNSECURED, KafkaSecurity, variable
from headstart.connections.own_security import use_security

MODES: Final = ("scram", "mtls")
MODE: Final = os.environ.get("TEST_SECURE", "")
ALLOWED: Final = "memory"
"""The process whose login of Kafka may do everything once it was granted; its worker uses none."""
_TOPIC, _GROUP, _TRANSACTIONAL_ID = 2, 3, 5
_LITERAL, _ALL, _ALLOW = 3, 2, 3
"""Codes of `org.apache.kafka.common.acl` and `.resource`."""
LEFT_BY_TLS: Final = (
    r"ignore:Exception ignored in. <(function _SelectorTransport.__del__|socket.socket)"
    ":pytest.PytestUnraisableExceptionWarning"
)
"""aiokafka does not wait until a TLS connection is shut down, and a loop that ends meanwhile leaves
its transport to the garbage collector, which may find it in any later test."""


def _missing() -> str:
    try:
        require_programs()
    except StackError as error:
        return str(error)
    return ""


MISSING: Final = _missing() if MODE else ""
"""Why a secured run cannot be tried here."""


def _made() -> Credentials | None:
    """Return what all stacks share; None: they are plain."""
    if not MODE:
        return None
    if MODE not in MODES:
        pytest.exit(f"TEST_SECURE must be one of {', '.join(MODES)}, not {MODE!r}", 4)
    if MISSING:
        return None
    folder = Path(tempfile.mkdtemp(prefix="headstart-secured-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # Where pytest makes folders by itself, every run of it takes them from other users again.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))
    return Credentials.opened(folder, kafka_certificates=MODE == "mtls")


CREDENTIALS: Final = _made()


def environment(identity: str = OPERATOR) -> dict[str, str]:
    """Return the variables by which a process logs in to Kafka; none in a plain run."""
    if CREDENTIALS is None:
        return {}
    options = CREDENTIALS.kafka_options(identity)
    return {variable(name): value for name, value in options.items()}


def stack_config(data: Path, kafka: str, **more: Any) -> StackConfig:
    """Return the configuration of a stack, secured if this run is. `kafka`: of a plain run."""
    if CREDENTIALS is None:
        return StackConfig(data=data, kafka=kafka, **more)
    prepare_data(data)
    return StackConfig(data=data, kafka="apache", secure=True, **more)


def up_options(data: Path, kafka: str) -> tuple[str, ...]:
    """Return the options of `headstart up` for a stack on `data`. `kafka`: of a plain run."""
    if CREDENTIALS is None:
        return ("--kafka", kafka)
    prepare_data(data)
    return ("--secure",)


def prepare_data(data: Path) -> None:
    """Give a data directory the certificates and passwords of all, and let Postgres enter it."""
    assert CREDENTIALS is not None
    shared = CREDENTIALS.certificates.folder.parent
    if not (data / shared.name).exists():
        shutil.copytree(shared, data / shared.name)
    temporary = Path(tempfile.gettempdir()).resolve()
    for each in (data.resolve(), *data.resolve().parents):
        if temporary in each.parents:  # pytest's folders are its own user's only
            each.chmod(each.stat().st_mode | 0o711)


def addresses_of(data: Path) -> Addresses:
    """Return the addresses of the stack that runs on a data directory, with their passwords."""
    stack = running(data)
    assert stack is not None
    assert stack.addresses is not None
    return stack.addresses


def logins(addresses: Addresses) -> Mapping[str, Mapping[str, str]]:
    """Return the variables of each process, its addresses included, by its name; plain: none."""
    if CREDENTIALS is None:
        return {}
    return {name: CREDENTIALS.variables(name, addresses) for name in USERS}


def of_worker(name: str, addresses: Addresses) -> Addresses:
    """Return the addresses as one process has them; those of the operator in a plain run."""
    if CREDENTIALS is None:
        return addresses
    own = CREDENTIALS.variables(name, addresses)
    return Addresses(addresses.kafka, own["HEADSTART_POSTGRES"], own["HEADSTART_REDIS"])


def reading(addresses: Addresses) -> str:
    """Return the URL of Redis as an executor has it."""
    return of_worker(EXECUTOR, addresses).redis


@contextmanager
def everything_allowed(data: Path) -> Iterator[KafkaSecurity]:
    """Have this process log in to the broker of a stack as a user who may do everything there.

    `data`: the stack's. For what tests do in place of other programs, whose rights are their own.
    """
    if CREDENTIALS is None:
        yield UNSECURED
        return
    properties = (data / "kafka" / "server.properties").read_text()
    internal = re.findall(r"INTERNAL://([\d.:]+)", properties)[-1]
    asyncio.run(_allow_everything(internal, CREDENTIALS))
    use_security(CREDENTIALS.kafka(ALLOWED))
    try:
        yield CREDENTIALS.kafka(ALLOWED)
    finally:
        use_security(None)


async def _allow_everything(internal: str, credentials: Credentials) -> None:
    principal = f"User:{credentials.principals[ALLOWED]}"
    client = AIOKafkaClient(bootstrap_servers=internal, **client_options(credentials.broker))
    await client.bootstrap()
    try:
        for kind in _TOPIC, _GROUP, _TRANSACTIONAL_ID:
            request = CreateAclsRequest(kind, "*", _LITERAL, principal, "*", _ALL, _ALLOW)
            ((code, reason),) = (
                await client.send(client.get_random_node(), request)
            ).creation_responses
            assert code == 0, reason
    finally:
        await client.close()
