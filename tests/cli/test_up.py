"""The options that `headstart up` accepts: others are wrong usage, before anything starts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import whole
from cli.system.chosen_services import chosen_services, unused_addresses
from deploy.local import StackError
from deploy.local.accepted import ACCEPTED, same_port, why_not
from deploy.local.ports import Ports
from headstart.arguments.checks import HIGHEST_PORT
from headstart.scrubbing.masking import masked
from settings import SettingsError, read_settings, read_with_origins

Run = Callable[..., subprocess.CompletedProcess[str]]
HERE = dict.fromkeys(("kafka", "postgres", "redis"), "embedded")
POSTGRES = "postgresql://ann:canary-secret@db/headstart"


@pytest.mark.parametrize("part", ["kafka", "postgres", "redis"])
@pytest.mark.parametrize("port", ["99999", "65536", "-1"])
def test_an_invalid_port(part: str, port: str) -> None:
    ended = CliRunner().invoke(whole(), ["up", f"--{part}-port={port}"])
    assert ended.exit_code == 2
    assert f"Invalid value for '--{part}-port'" in ended.output
    assert "equal to 0" in ended.output or "equal to 65535" in ended.output
    assert "taken" not in ended.output


def test_an_invalid_port_of_a_stack(tmp_path: Path) -> None:
    with pytest.raises(
        StackError, match=f"99999 is not a valid port for redis: .* 0 to {HIGHEST_PORT}"
    ):
        Ports(tmp_path).reserve("redis", 99_999)


@pytest.mark.parametrize(
    ("first", "second"), [("postgres", "redis"), ("kafka", "redis"), ("kafka", "postgres")]
)
def test_one_port_for_two_services(first: str, second: str) -> None:
    call = ["up", f"--{first}-port=5999", f"--{second}-port=5999"]
    ended = CliRunner().invoke(whole(), call)
    assert ended.exit_code == 2
    message = " ".join(ended.output.replace("│", "").split())
    assert "two services were given one port" in message
    assert f"--{first}-port and --{second}-port are both 5999" in message


def test_the_port_of_an_external_service_is_ignored() -> None:
    parts = {"postgres": "postgresql://h/x", "redis": "embedded"}
    assert same_port(parts, {"postgres": 5999, "redis": 5999}) is None
    assert same_port(dict.fromkeys(parts, "embedded"), {"postgres": 0, "redis": 0}) is None


def test_one_port_for_two_services_of_a_stack(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    port = ports.reserve("Postgres")
    with pytest.raises(StackError, match="two services were given one port: Postgres and Redis"):
        ports.reserve("Redis", port)
    ports.release()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("postgres", "apache"),
        ("postgres", ""),
        ("postgres", "localhost:5432"),
        ("redis", "apache"),
        ("redis", "localhost:6379"),
        ("redis", "Embedded"),
        ("kafka", "tansu"),
        ("kafka", ""),
        ("kafka", "localhost"),
        ("kafka", "localhost:0"),
        ("kafka", "a:9092,b:99999"),
    ],
)
def test_invalid_values_of_a_service(part: str, value: str) -> None:
    assert why_not(part, value) == f"accepted are {ACCEPTED[part]}"


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("kafka", "apache"),
        ("kafka", "a:9092, [::1]:9093"),
        ("postgres", "postgresql://u:p@h/d"),
        ("postgres", "postgres://"),
        ("postgres", "host=/run dbname=headstart"),
        ("redis", "rediss://h:6380/1"),
        ("redis", "unix:///run/redis.sock"),
    ],
)
def test_valid_values_of_a_service(part: str, value: str) -> None:
    assert why_not(part, value) is None
    assert why_not(part, "embedded") is None


def test_the_command_names_the_option_and_what_it_accepts(run: Run) -> None:
    ended = run("up", "--postgres", "apache:hush-hush")
    assert (ended.returncode, ended.stdout) == (2, "")
    message = " ".join(ended.stderr.replace("│", "").split())
    assert "--postgres" in message
    assert "embedded, configured (HEADSTART_POSTGRES), or a DSN: postgresql://" in message
    assert "hush-hush" not in message


@pytest.mark.parametrize("kafka", ["broker:99999", "a:9092,b:0"])
def test_an_invalid_port_of_a_broker(kafka: str) -> None:
    with pytest.raises(SettingsError, match="setting kafka: give host:port, the port from 1 to"):
        read_settings(kafka=kafka)


def test_a_configured_address_is_that_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an argument: process lists would show its password."""
    monkeypatch.chdir(tmp_path)
    Path("dsn").write_text(f"{POSTGRES}\n")
    Path("client.properties").write_text("bootstrap.servers=broker:9092\n")
    Path("headstart.toml").write_text('redis = "redis://cache:6379/0"\n')
    monkeypatch.setenv("HEADSTART_POSTGRES_FILE", "dsn")
    monkeypatch.setenv("HEADSTART_KAFKA_CONFIG", "client.properties")
    found = chosen_services(read_with_origins(), dict.fromkeys(HERE, "configured"))
    wanted = {"kafka": "broker:9092", "postgres": POSTGRES, "redis": "redis://cache:6379/0"}
    assert found == wanted
    assert masked("it says canary-secret") == "it says ***"
    assert unused_addresses(read_with_origins(), found) is None


@pytest.mark.parametrize("part", ["kafka", "postgres", "redis"])
def test_without_an_address_in_the_settings_configured_is_wrong_usage(part: str, run: Run) -> None:
    ended = run("up", f"--{part}", "configured")
    assert (ended.returncode, ended.stdout) == (2, "")
    message = " ".join(ended.stderr.replace("│", "").split())
    assert f"--{part}" in message
    assert f"no address is configured: set HEADSTART_{part.upper()}" in message


def test_a_note_names_addresses_of_the_settings_that_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert unused_addresses(read_with_origins(), HERE) is None
    monkeypatch.setenv("HEADSTART_POSTGRES", POSTGRES)
    Path("headstart.toml").write_text('redis = "redis://cache:6379/0"\n')
    note = unused_addresses(read_with_origins(), HERE)
    assert note == (
        "note: this system does not use postgres (environment HEADSTART_POSTGRES), redis (file "
        "headstart.toml, line 1), but other commands and executors do; unset it, or give "
        "--postgres configured --redis configured"
    )
    assert unused_addresses(read_with_origins(), HERE | {"postgres": POSTGRES}) is not None
    assert unused_addresses(read_with_origins(), dict.fromkeys(HERE, "redis://other")) is None
