"""Each key of `client.properties`, as librdkafka and as the Java client spell it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from headstart.connections import properties
from headstart.connections.kafka_security import KafkaSecurity, described_security
from headstart.connections.own_security import CONFIG, security_from_environment
from headstart.connections.properties import brokers_in, options_in, security_in
from headstart.connections.secret import Secret, UnusableSecurity

CANARY: Final = "canary-secret-value"
PEM: Final = f"-----BEGIN PRIVATE KEY----- \\\n  {CANARY} \\\n  -----END PRIVATE KEY-----"

SCRAM: Final = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "ann"}
OAUTH: Final = {
    "sasl_mechanism": "OAUTHBEARER",
    "oauth_token_url": "https://host/token",
    "oauth_client_id": "agent",
    "oauth_scope": "kafka",
}
TLS: Final = {"ssl_ca": "ca.pem", "ssl_cert": "user.pem", "ssl_key": "user.key"}
FILES: Final[dict[str, tuple[str, dict[str, str], str]]] = {
    "librdkafka, scram": (
        f"""metadata.broker.list=b:9093
            security.protocol=sasl_ssl
            sasl.mechanism=SCRAM-SHA-512
            sasl.username=ann
            sasl.password={CANARY}
            enable.ssl.certificate.verification=true
            ssl.endpoint.identification.algorithm=https""",
        {"security_protocol": "SASL_SSL", **SCRAM},
        "sasl_password",
    ),
    "librdkafka, several mechanisms": (
        f"""security.protocol=SASL_PLAINTEXT
            sasl.mechanisms=SCRAM-SHA-512
            sasl.username=ann
            sasl.password={CANARY}""",
        {"security_protocol": "SASL_PLAINTEXT", **SCRAM},
        "sasl_password",
    ),
    "librdkafka, certificate": (
        f"""bootstrap.servers=b:9093
            security.protocol=ssl
            ssl.ca.location=ca.pem
            ssl.certificate.location=user.pem
            ssl.key.location=user.key
            ssl.key.password={CANARY}
            ssl.endpoint.identification.algorithm=none""",
        {"security_protocol": "SSL", **TLS, "ssl_check_hostname": "false"},
        "ssl_key_password",
    ),
    "librdkafka, oauth": (
        f"""security.protocol=SASL_SSL
            sasl.mechanisms=OAUTHBEARER
            sasl.oauthbearer.method=oidc
            sasl.oauthbearer.grant.type=client_credentials
            sasl.oauthbearer.token.endpoint.url=https://host/token
            sasl.oauthbearer.client.id=agent
            sasl.oauthbearer.client.secret={CANARY}
            sasl.oauthbearer.scope=kafka""",
        {"security_protocol": "SASL_SSL", **OAUTH},
        "oauth_client_secret",
    ),
    "librdkafka, oauth by credentials": (
        f"""security.protocol=SASL_SSL
            sasl.mechanism=OAUTHBEARER
            sasl.oauthbearer.token.endpoint.url=https://host/token
            sasl.oauthbearer.client.credentials.client.id=agent
            sasl.oauthbearer.client.credentials.client.secret={CANARY}
            sasl.oauthbearer.scope=kafka""",
        {"security_protocol": "SASL_SSL", **OAUTH},
        "oauth_client_secret",
    ),
    "java, scram": (
        f"""security.protocol = SASL_SSL
            sasl.mechanism : SCRAM-SHA-512
            sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
                username='ann' \\
                password="{CANARY}";
            ssl.protocol=TLSv1.3
            ssl.enabled.protocols=TLSv1.2,TLSv1.3
            ssl.truststore.type=PEM
            ssl.truststore.location=ca.pem""",
        {"security_protocol": "SASL_SSL", **SCRAM, "ssl_ca": "ca.pem"},
        "sasl_password",
    ),
    "java, certificate": (
        f"""security.protocol=SSL
            security.providers=sun.security.provider.Sun
            ssl.truststore.type=PEM
            ssl.truststore.location=ca.pem
            ssl.keystore.type=pem
            ssl.keystore.location=user.pem
            ssl.key.password={CANARY}
            ssl.endpoint.identification.algorithm=""",
        {
            "security_protocol": "SSL",
            "ssl_ca": "ca.pem",
            "ssl_cert": "user.pem",
            "ssl_check_hostname": "false",
        },
        "ssl_key_password",
    ),
    "java, oauth": (
        f"""security.protocol=SASL_SSL
            sasl.mechanism=OAUTHBEARER
            sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.X
            sasl.login.class=org.apache.kafka.common.security.oauthbearer.Y
            sasl.client.callback.handler.class=org.apache.kafka.common.security.oauthbearer.Z
            sasl.oauthbearer.token.endpoint.url=https://host/token
            sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule \\
                required clientId="agent" clientSecret="{CANARY}" scope=kafka ;""",
        {"security_protocol": "SASL_SSL", **OAUTH},
        "oauth_client_secret",
    ),
}
"""The lines of a file, the same description as plain options, and which of them is the secret."""


def without_secrets(security: KafkaSecurity) -> KafkaSecurity:
    none = Secret()
    return replace(security, password=none, key_password=none, client_secret=none, profile="")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("by", ["path", "variable"])
def test_a_file_says_the_same_as_settings(
    name: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, options, secret = FILES[name]
    file = tmp_path / "client.properties"
    file.write_text("\n".join(line.strip() for line in text.splitlines()))
    monkeypatch.setenv(CONFIG, str(file))
    found = security_in(file) if by == "path" else security_from_environment()
    monkeypatch.chdir(tmp_path)  # relative paths are relative to the file
    wanted = described_security({**options, secret: CANARY})
    assert without_secrets(found) == without_secrets(wanted)
    assert options_in(file)[1][secret].read() == CANARY
    assert found.profile == str(file)
    assert CANARY not in repr(found)
    assert brokers_in(file) == ("b:9093" if "b:9093" in text else "")


def test_every_key_is_in_one_of_these_files() -> None:
    text = "\n".join(text for text, _, _ in FILES.values())
    known = {*properties._KEYS, *properties._IMPLIED, *properties._BROKERS, properties._JAAS}
    assert {key for key in known if key not in text} == set()
    assert {word for word in properties._IN_JAAS if f"{word}=" not in text} == set()


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("ssl.keystore.key", "ssl.key.location"),
        ("ssl.keystore.certificate.chain", "ssl.certificate.location"),
        ("ssl.truststore.certificates", "ssl.ca.location"),
        ("ssl.key.pem", "ssl.key.location"),
        ("ssl.certificate.pem", "ssl.certificate.location"),
        ("ssl.ca.pem", "ssl.ca.location"),
    ],
)
def test_pem_text_in_the_file_is_refused_with_the_fix(
    key: str, instead: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\nssl.keystore.type=PEM\n{key}={PEM}\n")
    with pytest.raises(UnusableSecurity) as raised:
        security_in(file)
    message = str(raised.value)
    assert f"{file}: {key} is PEM text" in message
    assert message.endswith(f"name that in {instead}")
    assert CANARY not in message


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("ssl.keystore.location=a.p12", "ssl.keystore.location is not PEM: export it"),
        ("ssl.keystore.type=PKCS12\nssl.keystore.location=a", "set ssl.keystore.type=PEM"),
        ("ssl.truststore.type=JKS\nssl.truststore.location=a", "set ssl.truststore.type=PEM"),
        (f"ssl.keystore.password={CANARY}", "ssl.keystore.password is not supported"),
        (f"ssl.truststore.password={CANARY}", "ssl.truststore.password is not supported"),
        ("sasl.kerberos.service.name=kafka", "sasl.kerberos.service.name is not supported"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "must be PLAIN, SCRAM-SHA-256"),
    ],
)
def test_what_the_java_client_may_do_and_we_do_not(tmp_path: Path, lines: str, says: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{lines}\n")
    with pytest.raises(UnusableSecurity, match=says) as raised:
        security_in(file)
    assert CANARY not in str(raised.value)
