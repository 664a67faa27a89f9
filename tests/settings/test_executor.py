"""Settings that executors would refuse are reported, for each variable by the client."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from settings.executor import CHECKS, refused
from settings.variables import EXECUTOR


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()


def test_every_variable_is_checked() -> None:
    assert CHECKS.keys() == EXECUTOR.keys() - {"HEADSTART_DEBUG"}, "any value of it will do"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HEADSTART_SPOOL", "file"),
        ("HEADSTART_SHIPPER", "proces"),
        ("HEADSTART_SCRUB", "no"),
        ("HEADSTART_COMPRESSION", "zip"),
        ("HEADSTART_CLIENT_ID", "a b"),
        ("HEADSTART_MODE", "OFF"),
        ("HEADSTART_LOG_FORMAT", "xml"),
        ("HEADSTART_LOG_LEVEL", "verbose"),
    ],
)
def test_refused_values(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    (message,) = refused()
    assert variable in message
    assert value in message or value.lower() in message
    ended = CliRunner().invoke(app, ["config", "show", "--json"])
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == f"error: {message}\n"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HEADSTART_SPOOL", "not-made-yet"), ("HEADSTART_SHIPPER", "none"),
        ("HEADSTART_SCRUB", "emit"), ("HEADSTART_MODE", ""), ("HEADSTART_LOG_LEVEL", "DEBUG"),
    ],
)  # fmt: skip
def test_accepted_values(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert list(refused()) == []
    assert CliRunner().invoke(app, ["config", "show", "--json"]).exit_code == 0
