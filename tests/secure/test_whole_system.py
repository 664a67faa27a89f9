"""The whole path on secure services: emit, ship, workers, Postgres, Redis, replay; no secret leaks.

Kafka by SCRAM and by certificate; Postgres and Redis by TLS with client certificates, Redis with an
ACL user.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from redis import Redis

from deploy.local import Addresses
from headstart.keys import redis_key
from tests.patience import until
from tests.processes import ENVIRONMENT, command_line, command_lines, run_command
from tests.secure.broker import PASSWORD, USER, Listeners
from tests.secure.certificates import Certificates
from tests.secure.identities import REDIS_PASSWORD, WORKER, Identities
from tests.secure.judged_events import judged
from tests.secure.tls_proxy import TlsProxy

EVENTS = 30
Variables = Mapping[str, str]


@pytest.fixture(scope="module")
def databases(
    plain: Addresses, certificates: Certificates, identities: Identities
) -> Iterator[Variables]:
    """The variables with which Postgres and Redis are reached by TLS."""
    assert identities.kafka  # it makes the user of Redis
    postgres = conninfo_to_dict(plain.postgres)
    before_postgres = TlsProxy(int(str(postgres["port"])), certificates, postgres=True)
    with Redis.from_url(plain.redis) as redis:
        port = redis.connection_pool.connection_kwargs["port"]
    before_redis = TlsProxy(port, certificates)
    ca, cert, key = certificates.pem("ca"), certificates.pem("worker"), certificates.key("worker")
    key.chmod(0o600)  # libpq refuses a key that others can read
    yield {
        "HEADSTART_POSTGRES": f"postgresql://{postgres['user']}@localhost:{before_postgres.port}/"
        f"{postgres['dbname']}?sslmode=verify-full&sslrootcert={ca}&sslcert={cert}&sslkey={key}",
        "HEADSTART_REDIS": f"rediss://{WORKER}:{REDIS_PASSWORD}@localhost:{before_redis.port}/0"
        f"?ssl_ca_certs={ca}&ssl_certfile={cert}&ssl_keyfile={key}&ssl_check_hostname=true",
    }
    before_postgres.close()
    before_redis.close()


@pytest.fixture(scope="module", params=["scram", "mtls"])
def variables(
    request: pytest.FixtureRequest,
    listeners: Listeners,
    certificates: Certificates,
    databases: Variables,
    tmp_path_factory: pytest.TempPathFactory,
) -> Variables:
    """All variables of a worker or executor."""
    folder = tmp_path_factory.mktemp(request.param)
    found = {
        **databases,
        "HEADSTART_KAFKA_SSL_CA": str(certificates.pem("ca")),
        "HEADSTART_DATA": str(folder / "data"),
        "HEADSTART_SPOOL": str(folder / "spool"),
        "HEADSTART_LOG_LEVEL": "debug",
        "HEADSTART_MEMORY": "false",
    }
    if request.param == "mtls":
        certificate = {
            "HEADSTART_KAFKA_SSL_CERT": str(certificates.pem("worker")),
            "HEADSTART_KAFKA_SSL_KEY": str(certificates.key("worker")),
        }
        return {**found, **certificate, "HEADSTART_KAFKA": listeners.mtls}
    password = folder / "password"
    password.write_text(PASSWORD)
    return {
        **found,
        "HEADSTART_KAFKA": listeners.sasl,
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",  # without the prefix, as other programs read it
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "HEADSTART_KAFKA_SASL_USERNAME": USER,
        "HEADSTART_KAFKA_SASL_PASSWORD_FILE": str(password),
    }


@pytest.fixture(scope="module")
def workers(
    variables: Variables, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """All workers, and the file with their output."""
    output = tmp_path_factory.mktemp("workers") / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            command_line("worker", "all"),
            env={**ENVIRONMENT, **variables},
            stdout=file,
            stderr=file,
            cwd=output.parent,
        )
        yield process, output
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_events_are_stored_learned_and_replayed_and_no_secret_leaks(
    variables: Variables,
    plain: Addresses,
    workers: tuple[subprocess.Popen[bytes], Path],
    tenant: str,
    tmp_path: Path,
) -> None:
    process, output = workers
    events = [judged(tenant) for _ in range(EVENTS)]
    emitted = run_command(
        "emit",
        "-",
        folder=tmp_path,
        environment=variables,
        stdin="\n".join(map(json.dumps, events)),
    )
    assert emitted.returncode == 0, emitted.stderr

    def arrived() -> bool:
        assert process.poll() is None, output.read_text()
        return stored(plain, tenant) == EVENTS and learned(plain, tenant) == EVENTS

    until(arrived, seen=lambda: (stored(plain, tenant), output.read_text()[-2000:]))
    shown = [
        run_command(*command, folder=tmp_path, environment=variables)
        for command in (
            ("verify", "--json"),
            ("doctor", "--json"),
            ("config", "show"),
            ("ship", "--drain", "--timeout", "20"),
        )
    ]
    verified = json.loads(shown[0].stdout.splitlines()[-1])
    assert shown[0].returncode == 0, (verified, shown[0].stderr)
    findings = json.loads(shown[1].stdout.splitlines()[-1])["findings"]
    kafka = next(each for each in findings if each["check"] == "kafka")
    assert kafka["state"] == "ok", findings
    assert shown[2].returncode == 0
    found = [output.read_text(), emitted.stdout, emitted.stderr, command_lines()]
    found += [text for each in shown for text in (each.stdout, each.stderr)]
    for folder in (variables["HEADSTART_SPOOL"], variables["HEADSTART_DATA"]):
        found += [
            path.read_text(errors="replace") for path in Path(folder).rglob("*") if path.is_file()
        ]
    for secret in (PASSWORD, REDIS_PASSWORD):
        assert not [text[:200] for text in found if secret in text]


def stored(plain: Addresses, tenant: str) -> int:
    with psycopg.connect(plain.postgres) as connection:
        row = connection.execute(
            "SELECT count(DISTINCT id) FROM episodic_events WHERE tenant = %s", [tenant]
        ).fetchone()
        return int(row[0]) if row else 0


def learned(plain: Addresses, tenant: str) -> int:
    with Redis.from_url(plain.redis) as redis:
        value = redis.hget(redis_key(tenant, "refund"), "workflow_type=refund")
        return int(json.loads(value)["outcomes"]) if value else 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"HEADSTART_KAFKA_SASL_PASSWORD": "canary-wrong-secret"}, "refuses the login"),
        ({"HEADSTART_KAFKA_SECURITY_PROTOCOL": "PLAINTEXT"}, "without an answer"),
        ({"HEADSTART_KAFKA_SSL_CA": "/stranger.pem"}, "/stranger.pem does not exist"),
    ],
)
def test_a_command_ends_with_one_line_that_names_the_fix(
    listeners: Listeners,
    certificates: Certificates,
    tmp_path: Path,
    wrong: Variables,
    says: str,
) -> None:
    right = {
        "HEADSTART_KAFKA": listeners.sasl,
        "HEADSTART_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "HEADSTART_KAFKA_SASL_USERNAME": USER,
        "HEADSTART_KAFKA_SASL_PASSWORD": PASSWORD,
        "HEADSTART_KAFKA_SSL_CA": str(certificates.pem("ca")),
    }
    ended = run_command("emit", "-", folder=tmp_path, stdin="{}\n", environment={**right, **wrong})
    [line] = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert "canary" not in ended.stderr
    assert ended.returncode == 77
