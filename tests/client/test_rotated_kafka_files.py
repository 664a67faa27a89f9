"""What describes Kafka connections is read again: users, passwords, certificates; without a broker.

Files that cannot be used are as good as not replaced yet, once the process has used others.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from deploy.local.secure.certificates import CertificateFolder
from headstart.connections.kafka_connections import client_options
from headstart.connections.kafka_security import described_security
from headstart.connections.own_security import (
    combined_security,
    security_from_environment,
    security_of_profile,
    use_security,
)
from headstart.connections.properties import security_in
from headstart.connections.secret import Secret, UnusableSecurity
from headstart.connections.tls import current_context
from headstart.scrubbing.masking import masked

FIRST, SECOND = "canary-first", "canary-second"


def login(options: dict[str, Any]) -> tuple[str, str]:
    """What the next connection of a client with these options logs in with."""
    found = options["sasl_plain_password"].login()
    return found["sasl_plain_username"], found["sasl_plain_password"]


def write_properties(file: Path, user: str, password: str) -> None:
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username={user}\nsasl.password={password}\n"
    )


def test_a_properties_file_may_name_another_user(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    write_properties(file, "one", FIRST)
    security = security_in(file)
    options = client_options(security)
    assert login(options) == ("one", FIRST)
    write_properties(file, "two", SECOND)
    assert login(options) == ("two", SECOND)
    file.write_text("security.protocol=SASL_PLAINTEXT\n")
    assert login(options) == ("two", SECOND), "half a file"
    file.write_text("")
    assert login(options) == ("two", SECOND), "before its first line"
    file.unlink()
    assert login(options) == login(client_options(security)) == ("two", SECOND)


@pytest.mark.parametrize("begun", ["", "bootstrap.servers=b:9093\n"])
def test_a_file_that_is_being_written_leads_to_no_plain_text(tmp_path: Path, begun: str) -> None:
    """Neither a running client, nor the shipper of a spool, which begins with the file's path."""
    file = tmp_path / "client.properties"
    write_properties(file, "one", FIRST)
    security = security_in(file)
    client_options(security)
    file.write_text(begun)
    assert client_options(security)["security_protocol"] == "SASL_PLAINTEXT"
    with pytest.raises(UnusableSecurity, match=r"is empty|neither TLS nor a login any more"):
        security_of_profile(security.profile)
    file.write_text(f"{begun}security.protocol=PLAINTEXT\n")
    assert security_of_profile(security.profile).protocol == "PLAINTEXT"
    assert client_options(security)["security_protocol"] == "SASL_PLAINTEXT"


def test_variables_override_a_file_that_changes(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    write_properties(file, "one", FIRST)
    options = client_options(combined_security(str(file), {"sasl_username": "mine"}))
    write_properties(file, "two", SECOND)
    assert login(options) == ("mine", SECOND)


def test_user_and_password_are_in_mounted_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, password = tmp_path / "username", tmp_path / "password"
    user.write_text("one\n")
    password.write_text(f"{FIRST}\n")
    monkeypatch.setenv("KAFKA_SASL_MECHANISM", "SCRAM-SHA-512")
    monkeypatch.setenv("KAFKA_SASL_USERNAME", "of others")
    monkeypatch.setenv("HEADSTART_KAFKA_SASL_USERNAME_FILE", str(user))
    monkeypatch.setenv("HEADSTART_KAFKA_SASL_PASSWORD_FILE", str(password))
    security = security_from_environment()
    assert security.profile == f"environment:SASL_SSL:SCRAM-SHA-512:{user}"
    options = client_options(security)
    assert login(options) == ("one", FIRST)
    user.write_text("two\n")
    password.write_text(f"{SECOND}\n")
    assert login(options) == ("two", SECOND)
    for file in (user, password):
        file.write_text("")
    assert login(options) == login(client_options(security)) == ("two", SECOND)
    with pytest.raises(UnusableSecurity, match="username is empty"):
        security_from_environment()


def test_a_file_that_stays_unusable_is_one_warning_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not one for each connection that a client tries meanwhile."""
    secret = Secret(file=str(tmp_path / "secret"))
    for _ in range(2):
        Path(secret.file).write_text(FIRST)
        secret.read()
        Path(secret.file).unlink()
        for _ in range(3):
            assert secret.read() == FIRST
    assert caplog.text.count("stays in use") == 2


def test_an_empty_file_is_an_error_where_none_was_read(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("")
    security = described_security(
        {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password_file": str(file)}
    )
    with pytest.raises(UnusableSecurity, match="password is empty"):
        client_options(security)


def test_a_secret_is_masked_whenever_it_changes(tmp_path: Path) -> None:
    secret = Secret(file=str(tmp_path / "secret"))
    for text in (FIRST, SECOND):
        Path(secret.file).write_text(text)
        assert secret.read() == text
    assert "canary" not in masked(f"{FIRST} and {SECOND}")


@pytest.fixture
def pairs(tmp_path: Path) -> CertificateFolder:
    if not shutil.which("openssl"):
        pytest.skip("certificates are made with openssl")
    made = CertificateFolder(tmp_path)
    made.make_ca("ca", days=2)
    for name in ("first", "second"):
        made.sign(name, days=2)
    return made


def use(pairs: CertificateFolder, name: str, *suffixes: str) -> None:
    """Replace the certificate, its key, or both."""
    for suffix in suffixes:
        new = pairs.folder / f"used.new{suffix}"
        shutil.copy(pairs.folder / f"{name}{suffix}", new)
        new.rename(pairs.folder / f"used{suffix}")


def test_half_replaced_certificates_end_no_running_worker(
    pairs: CertificateFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker makes clients while it runs: for a new connection to its group, or for a probe."""
    use(pairs, "first", ".pem", ".key")
    described = {
        "ssl_ca": str(pairs.pem("ca")),
        "ssl_cert": str(pairs.pem("used")),
        "ssl_key": str(pairs.key("used")),
    }
    security = described_security(described)
    use_security(security)
    try:
        client_options()
        first = current_context(security)
        use(pairs, "second", ".pem")
        with caplog.at_level(logging.WARNING, "headstart"):
            for _ in range(3):
                client_options()
                assert current_context(described_security(described)) is first
        assert caplog.text.count("the key is not that of the certificate") == 1
        pairs.key("used").unlink()
        client_options()
        assert current_context(security) is first
        use(pairs, "second", ".key")
        client_options()
        second = current_context(security)
        assert second is not first
        assert current_context(security) is second
        pairs.key("used").unlink()
        with pytest.raises(UnusableSecurity, match=r"used\.key does not exist"):
            client_options(described_security({**described, "ssl_check_hostname": "false"}))
    finally:
        use_security(None)
