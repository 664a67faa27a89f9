"""Every setting that may hold a secret is read from a file, too, and is masked then."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path
from typing import Final

import pytest
from pydantic import SecretStr

from headstart.arguments import environment as of_executors
from headstart.connections.own_security import own_security, security_from_environment, use_security
from headstart.scrubbing.masking import masked
from settings import Settings, SettingsError, environment, read_settings, read_with_origins
from settings.origins import shown
from settings.secret_files import FROM_FILES, MAY_HOLD_SECRETS
from settings.variables import EXECUTOR, misspelt, unread

CANARY: Final = "canary-4711-secret"
KEY: Final = b64encode(CANARY.ljust(32, "x").encode()).decode()
VALUES: Final = {
    "postgres": f"postgresql://ann:{CANARY}@db/headstart",
    "redis": f"rediss://ann:{CANARY}@cache:6380/0",
    "embedding_url": f"https://host/v1?api-version=1&api-key={CANARY}",
    "encryption_key": f"a:{KEY}",
}
"""Of settings that do not take any text."""
OF_KAFKA: Final = {
    "kafka_sasl_password": {"SASL_MECHANISM": "PLAIN", "SASL_USERNAME": "ann"},
    "kafka_ssl_key_password": {"SSL_CA": "ca.pem"},
    "kafka_oauth_client_secret": {"OAUTH_TOKEN_URL": "https://host/token", "OAUTH_CLIENT_ID": "a"},
}
"""The options beside a secret of Kafka, without which it is not used."""
SECRET: Final = [name for name in MAY_HOLD_SECRETS if name != "kafka"]  # refused in an address
NO_SECRET: Final = {"kafka_ssl_key", "kafka_oauth_token_url"}
"""A path and a URL; their names only sound like a secret."""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def variables_of(name: str) -> dict[str, str]:
    return {f"HEADSTART_KAFKA_{key}": value for key, value in OF_KAFKA.get(name, {}).items()}


def value_of(settings: Settings, name: str) -> str:
    """What is used in the end: Kafka's secrets are read for each connection."""
    if name in OF_KAFKA:
        security = own_security()
        secrets = (security.password, security.key_password, security.client_secret)
        [found] = [each.read() for each in secrets if each]
        return found
    value = getattr(settings, name)
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def test_every_secret_of_the_catalogue_is_known() -> None:
    fields = Settings.model_fields
    secret = {name for name, each in fields.items() if each.annotation is SecretStr}
    assert secret <= MAY_HOLD_SECRETS
    named = {name for name in fields if re.search("pass|secret|token|key", name)}
    named -= {f"{name}_file" for name in OF_KAFKA}
    assert named - MAY_HOLD_SECRETS - NO_SECRET == set()
    assert set(SECRET) == set(FROM_FILES) | OF_KAFKA.keys()
    assert {name for name, (_, meaning) in EXECUTOR.items() if "secret of" in meaning} == {
        "HEADSTART_HASH_KEY"
    }


@pytest.mark.parametrize("name", sorted(SECRET))
def test_a_secret_is_read_from_a_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = VALUES.get(name, CANARY)
    Path("secret").write_text(f"{given}\n")
    for variable, value in variables_of(name).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv(f"HEADSTART_{name.upper()}_FILE", "secret")
    monkeypatch.setenv(f"HEADSTART_{name.upper()}", "")  # as Compose gives one that is not set
    reading = read_with_origins()
    assert value_of(reading.settings, name) == given
    assert list(misspelt(Settings.model_fields)) == list(unread(Settings.model_fields)) == []
    if name in FROM_FILES:
        assert reading.origins[name] == f"environment HEADSTART_{name.upper()}_FILE"
        assert f"HEADSTART_{name.upper()}" not in environment(reading.settings), "a child reads it"
    display = [f"{each.value} {each.origin}" for each in shown(reading)]
    said = KEY if name == "encryption_key" else CANARY
    assert not [each for each in display if said in each]
    assert masked(f"it says {said} here") == "it says *** here"


@pytest.mark.parametrize("name", sorted(SECRET))
def test_a_file_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in variables_of(name).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv(f"HEADSTART_{name.upper()}_FILE", "absent")

    def used() -> None:
        value_of(read_settings(), name)

    with pytest.raises((SettingsError, ValueError), match=r"absent cannot be read: No such file"):
        used()


@pytest.mark.parametrize("name", sorted(OF_KAFKA))
def test_executors_read_the_files_of_kafka(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("secret").write_text(f"{CANARY}\n")
    for variable, value in variables_of(name).items():
        monkeypatch.setenv(variable.removeprefix("HEADSTART_"), value)
    monkeypatch.setenv(f"{name.upper()}_FILE", "secret")
    use_security(security_from_environment())
    assert value_of(Settings(), name) == CANARY


def test_executors_read_the_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("secret").write_text(f"{CANARY}\n")
    Path("url").write_text(VALUES["redis"])
    monkeypatch.setenv("HEADSTART_HASH_KEY", "")
    monkeypatch.setenv("HEADSTART_HASH_KEY_FILE", "secret")
    monkeypatch.setenv("HEADSTART_REDIS_FILE", "url")
    assert of_executors.hash_key() == CANARY.encode()
    assert of_executors.redis() == VALUES["redis"]


def test_the_page_on_secure_connections_names_each() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/secure-connections.md").read_text()
    section = page.partition("## Secrets in files")[2].partition("\n## ")[0]
    for name in (*FROM_FILES, "hash_key"):
        assert f"`HEADSTART_{name.upper()}`" in section, name
