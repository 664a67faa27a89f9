"""What describes a Kafka connection: files, variables, names in spools; without a broker."""

from __future__ import annotations

import asyncio
import base64
import pickle
import re
from pathlib import Path

import pytest

from headstart.connections.kafka_connections import NoToken, client_options
from headstart.connections.kafka_security import UNSECURED, described_security
from headstart.connections.own_security import security_from_environment, security_of_profile
from headstart.connections.properties import security_in
from headstart.connections.secret import Secret, UnusableSecurity

CANARY = "canary-secret-value"
ROOT = Path(__file__).parents[2]
FACTORIES = {
    "client/headstart/connections/kafka_connections.py",
    "topics/kafka/admin.py",  # of AIOKafkaAdminClient, with `client_options`
    "deploy/access/kafka_acl_requests.py",  # of AIOKafkaClient, with `client_options`
}
_MADE = re.compile(
    r"AIOKafka(?:Consumer|Producer|AdminClient|Client)\(|(?<!_)\bcreate_conn\(|bootstrap_servers="
)


def test_no_other_place_makes_a_client() -> None:
    packages = ("agents", "cli", "client", "console", "demo", "deploy", "memory", "replay",
                "settings", "sinks", "topics")  # fmt: skip
    made = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if _MADE.search(path.read_text())
    }
    assert made == FACTORIES


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"ssl_ca": "ca.pem"}, "SSL"),
        ({"sasl_mechanism": "plain", "sasl_username": "u", "sasl_password": CANARY}, "SASL_SSL"),
        ({"security_protocol": "PLAINTEXT", "sasl_username": "u"}, "PLAINTEXT"),
        ({"ssl_check_hostname": "false"}, "PLAINTEXT"),
    ],
)
def test_the_protocol_follows_from_the_options(options: dict[str, str], protocol: str) -> None:
    security = described_security(options)
    assert security.protocol == protocol
    assert CANARY not in repr(security)
    assert pickle.loads(pickle.dumps(security)) == security


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"security_protocol": "TLS"}, "HEADSTART_KAFKA_SECURITY_PROTOCOL must be"),
        ({"security_protocol": "SASL_SSL"}, "HEADSTART_KAFKA_SASL_MECHANISM is missing"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "u"}, r"SASL_PASSWORD .*_FILE. is missing"),
        ({"security_protocol": "SSL", "ssl_key": "k"}, "HEADSTART_KAFKA_SSL_CERT is missing"),
        ({"sasl_password": CANARY}, "HEADSTART_KAFKA_SASL_MECHANISM is missing: SASL_SSL needs"),
        ({"oauth_client_secret_file": "f"}, "HEADSTART_KAFKA_SASL_MECHANISM is missing"),
        ({"ssl_key": "k"}, "HEADSTART_KAFKA_SSL_CERT is missing"),
        ({"security_protocol": "SSL", "ssl_check_hostname": "no"}, "must be true or false"),
        ({"oauth_token_url": "file:///etc", "oauth_client_id": "c", "oauth_client_secret": CANARY},
         "must be an http or https URL"),
        ({"sasl_mechanism": "AWS_MSK_IAM"}, "HEADSTART_KAFKA_AWS_REGION is missing"),
    ],
)  # fmt: skip
def test_incomplete_options_are_refused_by_name(options: dict[str, str], says: str) -> None:
    with pytest.raises(UnusableSecurity, match=says):
        described_security(options)


def test_a_token_for_msk_is_signed_by_the_credentials_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    security = described_security({"sasl_mechanism": "AWS_MSK_IAM"})
    options = client_options(security)
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    token = asyncio.run(options["sasl_oauth_token_provider"].token())
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "AKIDEXAMPLE%2F" in url
    assert CANARY not in url


def test_without_aws_credentials_the_fix_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    security = described_security({"sasl_mechanism": "AWS_MSK_IAM", "aws_region": "eu-west-1"})
    provider = client_options(security)["sasl_oauth_token_provider"]
    with pytest.raises(NoToken, match="no AWS credentials") as raised:
        asyncio.run(provider.token())
    assert "AWS_PROFILE" in raised.value.remedy


def test_plain_text_takes_no_arguments() -> None:
    assert client_options(UNSECURED) == {}


def test_a_file_of_librdkafka_is_read(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "! comment\nbootstrap.servers = b:9093\nsecurity.protocol=sasl_ssl\nlinger.ms=5\n"
        f"sasl.mechanisms=SCRAM-SHA-256\nsasl.username=u\nsasl.password={CANARY}=:x\n"
        "ssl.ca.location=ca.crt\nssl.endpoint.identification.algorithm=\n"
    )
    security = security_in(file)
    assert (security.mechanism, security.username) == ("SCRAM-SHA-256", "u")
    assert (security.ca, security.check_hostname) == (str(tmp_path / "ca.crt"), False)
    assert security.password.read() == f"{CANARY}=:x"
    assert security.profile == str(file)
    assert security_of_profile(security.profile) == security


def test_a_secret_alone_in_a_file_is_no_plain_text(tmp_path: Path) -> None:
    (tmp_path / "c").write_text(f"bootstrap.servers=b:9093\nsasl.password={CANARY}\n")
    with pytest.raises(UnusableSecurity, match="SASL_MECHANISM is missing"):
        security_in(tmp_path / "c")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "c is empty"),
        ("# security.protocol=SSL", "c is empty"),
        ("ssl.truststore.location=a.jks", "is not PEM"),
        ("ssl.cipher.suites=X", "ssl.cipher.suites is not supported"),
        ("enable.ssl.certificate.verification=false", "is refused"),
        ("nonsense", "line 1: not of the form KEY=VALUE"),
        (
            'sasl.jaas.config=x.IAMLoginModule required awsRoleArn="r";',
            "awsRoleArn is not supported",
        ),
    ],
)
def test_a_file_that_asks_for_more_is_refused(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "c").write_text(f"{line}\n")
    with pytest.raises(UnusableSecurity, match=says):
        security_in(tmp_path / "c")


def test_variables_with_the_prefix_precede_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(f"{CANARY}\n")
    monkeypatch.setenv("KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("KAFKA_SASL_USERNAME", "bare")
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", "bare-secret")
    monkeypatch.setenv("HEADSTART_KAFKA_SASL_USERNAME", "ours")
    monkeypatch.setenv("HEADSTART_KAFKA_SASL_PASSWORD_FILE", str(tmp_path / "password"))
    found = security_from_environment()
    assert (found.mechanism, found.username, found.password.read()) == ("PLAIN", "ours", CANARY)
    assert found.profile == "environment:SASL_SSL:PLAIN:ours"


def test_a_shipper_with_another_login_refuses_by_name() -> None:
    with pytest.raises(UnusableSecurity, match=r"need the Kafka login 'environment:SSL'"):
        security_of_profile("environment:SSL")


def test_an_unreadable_secret_is_named_not_shown(tmp_path: Path) -> None:
    with pytest.raises(UnusableSecurity, match="absent cannot be read"):
        Secret(file=str(tmp_path / "absent")).read()
    assert CANARY not in repr(Secret(CANARY))
