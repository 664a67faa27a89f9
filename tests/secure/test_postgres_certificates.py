"""What a Postgres with TLS says of certificates, named by doctor, commands and workers."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from console.inspection.doctor.databases import check_postgres
from console.inspection.doctor.findings import ERROR
from deploy.local import Addresses, StackError
from deploy.local.process_group import ProcessGroup
from deploy.local.secure.credentials import OWNER
from deploy.local.secure.programs import postgres_installation
from tests.patience import until
from tests.processes import ENVIRONMENT, command_line
from tests.secure.broker import Listeners
from tests.secure.certificates import Certificates
from tests.secure.commands import Command
from tests.secure.tls_postgres import TlsPostgres

HERE = "DNS:localhost,IP:127.0.0.1"
EXPIRED = ("its certificate, or that of its CA, has expired", "renew it on the server")
UNTRUSTED = ("its certificate is not signed by a trusted CA", "sslrootcert in --postgres DSN")


@pytest.fixture(scope="module")
def server(certificates: Certificates) -> Iterator[TlsPostgres]:
    try:
        postgres_installation()
    except StackError as error:
        pytest.skip(str(error))
    certificates.sign(OWNER)
    certificates.sign("late", hosts=HERE, days=-1)
    certificates.sign("elsewhere", hosts="DNS:elsewhere.invalid")
    certificates.sign("stray", hosts=HERE, ca="stranger")
    certificates.sign("expired", days=-1)
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # the account of Postgres enters it, unlike pytest's folders
        group = ProcessGroup(folder)
        try:
            yield TlsPostgres(group, certificates)
        finally:
            group.close()


CAUSES = [
    ("late", OWNER, *EXPIRED),
    ("stray", OWNER, *UNTRUSTED),
    ("elsewhere", OWNER, "its certificate is for another host name", "use a host name that is in"),
    ("server", "expired", "the certificate of this client has expired", "file of sslcert"),
    ("server", "intruder", "it refuses the certificate of this client", "sslcert and sslkey"),
    ("server", "", "it wants a certificate of this client", "sslcert and sslkey"),
]
"""The server's certificate, the client's, and what is said."""


@pytest.mark.parametrize(("presented", "client", "what", "remedy"), CAUSES)
def test_doctor_and_commands_name_the_cause(
    server: TlsPostgres, command: Command, presented: str, client: str, what: str, remedy: str
) -> None:
    server.present(presented)
    found, _clock = asyncio.run(check_postgres(server.dsn(client), time.time))
    [error] = [each for each in found if each.level == ERROR]
    assert what in error.what
    assert remedy in error.remedy
    code, line = command({"HEADSTART_POSTGRES": server.dsn(client)}, "migrate")
    assert code == 77
    assert f"{what}; " in line
    assert remedy in line


def test_of_several_hosts_the_one_that_refuses_is_named(
    server: TlsPostgres, command: Command
) -> None:
    server.present("late")
    hosts = f"localhost:{server.port},127.0.0.1:{server.port}"
    address = server.dsn().replace(f"127.0.0.1:{server.port}", hosts)
    code, line = command({"HEADSTART_POSTGRES": address}, "migrate")
    assert code == 77
    assert f"localhost:{server.port}: {EXPIRED[0]}; {EXPIRED[1]}" in line


@pytest.mark.parametrize("worker", ["episodes", "memory"])
@pytest.mark.parametrize(("presented", "cause"), [("late", EXPIRED), ("stray", UNTRUSTED)])
def test_the_log_line_of_a_worker_names_the_cause(
    server: TlsPostgres,
    listeners: Listeners,
    plain: Addresses,
    tmp_path: Path,
    worker: str,
    presented: str,
    cause: tuple[str, str],
) -> None:
    server.present(presented)
    output = tmp_path / "output"
    variables = {
        "HEADSTART_KAFKA": listeners.internal,
        "HEADSTART_POSTGRES": server.dsn(),
        "HEADSTART_REDIS": plain.redis,
        "HEADSTART_DATA": str(tmp_path / "data"),
    }
    with output.open("wb") as file:
        process = subprocess.Popen(
            command_line("worker", worker),
            env={**ENVIRONMENT, **variables},
            stdout=file,
            stderr=file,
            cwd=tmp_path,
        )
    try:
        until(lambda: "worker.retrying" in output.read_text(), seen=output.read_text)
    finally:
        process.kill()
        process.wait()
    line = next(each for each in output.read_text().splitlines() if "worker.retrying" in each)
    assert cause[0] in line
    assert cause[1] in line
