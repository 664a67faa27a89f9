"""The remedy for a login that a broker refuses names the settings of that mechanism."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiokafka.errors import SaslAuthenticationFailed, TopicAuthorizationFailedError

from headstart.connections import kafka_connections
from headstart.connections.kafka_connections import FailedConnection
from headstart.connections.kafka_errors import denied_trouble, kafka_trouble
from headstart.connections.kafka_security import described_security
from headstart.connections.own_security import use_security

TOKENS = {
    "oauth_token_url": "https://issuer/token",
    "oauth_client_id": "agent",
    "oauth_client_secret": "canary-secret",
}


@pytest.fixture(autouse=True)
def _own_security_is_put_back() -> Iterator[None]:
    yield
    use_security(None)


@pytest.mark.parametrize(
    ("options", "to_broker", "named", "settings"),
    [
        (
            {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "canary-secret"},
            "PLAIN",
            "PLAIN",
            ["HEADSTART_KAFKA_SASL_USERNAME", "HEADSTART_KAFKA_SASL_PASSWORD"],
        ),
        (
            TOKENS,
            "OAUTHBEARER",
            "OAUTHBEARER",
            ["HEADSTART_KAFKA_OAUTH_CLIENT_ID", "HEADSTART_KAFKA_OAUTH_SCOPE"],
        ),
        (
            {"sasl_mechanism": "AWS_MSK_IAM", "aws_region": "eu-west-1"},
            "OAUTHBEARER",
            "AWS_MSK_IAM",
            ["kafka-cluster:Connect", "HEADSTART_KAFKA_AWS_REGION"],
        ),
    ],
)
def test_the_remedy_is_of_the_mechanism(
    options: dict[str, str],
    to_broker: str,
    named: str,
    settings: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_security(described_security(options))
    failed = FailedConnection(SaslAuthenticationFailed("no"), "SASL_SSL", to_broker, "")
    monkeypatch.setitem(kafka_connections._failed, ("broker", 9093), failed)
    trouble = kafka_trouble("broker:9093", ConnectionError())
    assert trouble is not None
    assert trouble.what == f"it refuses the login by {named}"
    assert all(each in trouble.remedy for each in settings)


def test_an_identity_of_aws_has_no_user_name() -> None:
    use_security(described_security({"sasl_mechanism": "AWS_MSK_IAM", "aws_region": "eu-west-1"}))
    trouble = denied_trouble(TopicAuthorizationFailedError("headstart.events"))
    assert trouble is not None
    assert trouble.what == "its ACLs refuse this AWS identity the topic headstart.events"
