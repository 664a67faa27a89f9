"""What `doctor` and the commands say of rights, logins and certificates that are wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict
from redis import Redis

from console.inspection.doctor.broker import check_broker
from console.inspection.doctor.databases import check_postgres, check_redis
from console.inspection.doctor.findings import ERROR, Finding
from console.inspection.doctor.groups import check_groups
from deploy.local import Addresses
from headstart.connections.certificate_validity import is_expired
from headstart.connections.kafka_security import KafkaSecurity, described_security
from headstart.connections.own_security import use_security
from tests.secure.broker import Listeners
from tests.secure.certificates import Certificates
from tests.secure.commands import Command
from tests.secure.identities import STRANGER, Identities
from tests.secure.tls_proxy import TlsProxy

ACL = "`headstart topics acl`"


def one(found: list[Finding], what: str, remedy: str) -> None:
    [error] = [each for each in found if each.level == ERROR]
    assert what in error.what
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("identity", "hidden"),
    [(STRANGER, "headstart.events"), ("executor", "headstart.commands")],
)
def test_missing_acls_are_not_missing_topics(
    identities: Identities, identity: str, hidden: str
) -> None:
    security = identities.security(identity)
    use_security(security)
    found, log = asyncio.run(check_broker(identities.kafka))
    one(found, f"its ACLs refuse the user {security.username} the topic ", ACL)
    assert hidden in found[0].what
    assert log is None


def test_an_acl_of_groups_is_named(identities: Identities, plain: Addresses) -> None:
    """The finding of `groups`, of a user that may read the topics."""
    use_security(KafkaSecurity())
    _found, log = asyncio.run(check_broker(identities.internal))
    assert log is not None
    use_security(identities.security("executor"))
    one(
        asyncio.run(check_groups(identities.kafka, plain.postgres, log)),
        "its ACLs refuse the user headstart-executor the group headstart-",
        ACL,
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("topics list", "its ACLs refuse the user headstart-executor the topic"),
        ("config set mode off --everybody", "headstart.commands"),
    ],
)
def test_a_command_without_its_rights_ends_with_77(
    identities: Identities, command: Command, words: str, says: str
) -> None:
    use_security(None)
    code, line = command(identities.variables("executor"), *words.split())
    assert code == 77
    assert says in line
    assert ACL in line


@pytest.mark.parametrize("service", ["postgres", "redis"])
def test_a_wrong_login_ends_with_77(plain: Addresses, command: Command, service: str) -> None:
    environment = {
        "HEADSTART_POSTGRES": plain.postgres.replace("postgres@", "nobody@"),
        "HEADSTART_REDIS": plain.redis.replace("//", "//nobody:x@"),
    }
    words = {"postgres": ["migrate"], "redis": ["thresholds", "list"]}[service]
    code, line = command(environment, *words)
    assert "the password or user is wrong" in line
    assert code == 77


def test_a_right_that_redis_lacks_is_named(identities: Identities) -> None:
    found, _clock = asyncio.run(check_redis(identities.redis("executor"), time.time))
    one(found, "its ACL refuses the user", "`headstart topics acl --format redis`")


def test_an_expired_certificate_of_the_client_is_named(
    listeners: Listeners, certificates: Certificates
) -> None:
    certificates.sign("expired", days=-1)
    assert is_expired(str(certificates.pem("expired")))
    assert not is_expired(str(certificates.pem("worker")))
    assert not is_expired(str(certificates.key("worker")))
    options = {
        "ssl_ca": str(certificates.pem("ca")),
        "ssl_cert": str(certificates.pem("expired")),
        "ssl_key": str(certificates.key("expired")),
    }
    use_security(described_security(options))
    found, _log = asyncio.run(check_broker(listeners.mtls))
    one(found, "the certificate of this client has expired", "HEADSTART_KAFKA_SSL_CERT")


Proxies = Callable[[str], tuple[str, str]]


@pytest.fixture
def behind_tls(plain: Addresses, certificates: Certificates) -> Iterator[Proxies]:
    """Postgres and Redis behind TLS with a certificate of this name; their addresses.

    As a server, asyncio ends a connection whose certificate it refuses without TLS's alert: what
    the clients say of alerts is in tests/sinks/test_troubles.py.
    """
    found: list[TlsProxy] = []

    def start(name: str) -> tuple[str, str]:
        postgres = int(str(conninfo_to_dict(plain.postgres)["port"]))
        with Redis.from_url(plain.redis) as redis:
            port = redis.connection_pool.connection_kwargs["port"]
        found.append(TlsProxy(postgres, certificates, name, postgres=True))
        found.append(TlsProxy(port, certificates, name))
        return (
            f"postgresql://postgres@localhost:{found[-2].port}/headstart",
            f"rediss://localhost:{found[-1].port}/0",
        )

    yield start
    for each in found:
        each.close()


@pytest.mark.parametrize(
    ("server", "client", "of_postgres", "of_redis"),
    [
        ("late", "worker", "CA, has expired", "CA, has expired"),
        ("elsewhere", "worker", "for another host name", "for another host name"),
        ("stray", "worker", "is not signed by a trusted CA", "cannot be verified"),
        ("server", "expired", "this client has expired", "this client has expired"),
    ],
)
def test_certificates_of_postgres_and_redis(
    certificates: Certificates,
    behind_tls: Proxies,
    server: str,
    client: str,
    of_postgres: str,
    of_redis: str,
) -> None:
    here = "DNS:localhost,IP:127.0.0.1"
    certificates.sign("late", hosts=here, days=-1)
    certificates.sign("elsewhere", hosts="DNS:elsewhere.invalid")
    certificates.sign("stray", hosts=here, ca="stranger")
    certificates.sign("expired", days=-1)
    ca, cert, key = certificates.pem("ca"), certificates.pem(client), certificates.key(client)
    key.chmod(0o600)  # libpq refuses a key that others can read
    dsn, url = behind_tls(server)
    dsn += f"?sslmode=verify-full&sslrootcert={ca}&sslcert={cert}&sslkey={key}"
    url += f"?ssl_ca_certs={ca}&ssl_certfile={cert}&ssl_keyfile={key}&ssl_check_hostname=true"
    found, _clock = asyncio.run(check_postgres(dsn, time.time))
    one(found, of_postgres, "")
    found, _clock = asyncio.run(check_redis(url, time.time))
    one(found, of_redis, "")


def test_plain_text_to_a_port_for_tls(behind_tls: Proxies) -> None:
    _dsn, url = behind_tls("server")
    found, _clock = asyncio.run(check_redis(url.replace("rediss://", "redis://"), time.time))
    one(found, "closes the connection without an answer", "rediss://")
