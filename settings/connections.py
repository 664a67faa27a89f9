"""Makes the description of Kafka connections from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from headstart.connections.kafka_security import (
    OPTIONS,
    PLAINTEXT,
    SECRETS,
    UNSECURED,
    KafkaSecurity,
    variable,
)
from headstart.connections.own_security import combined_security, use_security
from headstart.connections.properties import brokers_in

if TYPE_CHECKING:
    from settings import Settings


def security_of(settings: Settings) -> KafkaSecurity:
    """Return how to connect to Kafka. Raises `UnusableSecurity`."""
    options = {name: str(getattr(settings, f"kafka_{name}")) for name in OPTIONS}
    for name in SECRETS:
        options[name] = getattr(settings, f"kafka_{name}").get_secret_value()
    if settings.kafka_ssl_check_hostname:
        del options["ssl_check_hostname"]  # the file may say otherwise
    return combined_security(settings.kafka_config, options)


def login_of_stack(settings: Settings) -> dict[str, Any]:
    """Return the settings that differ from how commands log in at the local stack's own broker.

    Of one that was started with `--secure` as its operator, else plain text: settings of Kafka's
    security are those of another broker.
    """
    from deploy.access.rights import OPERATOR
    from deploy.local.secure.credentials import Credentials

    credentials = Credentials.kept(settings.data)
    login = credentials.kafka_options(OPERATOR) if credentials else {"security_protocol": PLAINTEXT}
    options: dict[str, Any] = dict.fromkeys(OPTIONS, "") | login
    options |= {name: SecretStr("") for name in SECRETS} | {"ssl_check_hostname": True}
    found = {"kafka_config": "", **{f"kafka_{name}": value for name, value in options.items()}}
    return {name: value for name, value in found.items() if value != getattr(settings, name)}


def local_security(kafka: str) -> dict[str, str]:
    """Have this process connect in plain text if it starts the broker itself.

    `kafka`: `embedded`, `apache`, or an address. Returns the variables by which its children do.
    """
    if kafka not in ("embedded", "apache"):
        return {}
    use_security(UNSECURED)
    return {variable("security_protocol"): UNSECURED.protocol}


def brokers_of_config(settings: Settings) -> dict[str, str]:
    """Return the setting `kafka` as `kafka_config` gives it, if it does.

    Raises `UnusableSecurity`.
    """
    brokers = brokers_in(Path(settings.kafka_config)) if settings.kafka_config else ""
    return {"kafka": brokers} if brokers else {}
