"""The commands that come with the client alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart import cli
from headstart.integrations import mcp_proxy_script

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())  # as if the service were missing
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"")
    return str(file)


def failure(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr("sys.argv", ["headstart", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return str(ended.value.code)


def test_emit_sends_to_the_broker_of_the_environment(
    events: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_KAFKA", NOWHERE)
    assert f"answers at {NOWHERE} " in failure(monkeypatch, "emit", events)
    monkeypatch.setenv("HEADSTART_KAFKA", "127.0.0.1:2")
    assert f"answers at {NOWHERE} " in failure(monkeypatch, "emit", events, "--kafka", NOWHERE)


def test_a_login_that_cannot_be_used_has_an_exit_code_of_its_own(
    events: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADSTART_KAFKA_SASL_MECHANISM", "PLAIN")
    assert failure(monkeypatch, "emit", events, "--kafka", NOWHERE) == "77"
    assert "HEADSTART_KAFKA_SASL_USERNAME" in capsys.readouterr().err


def test_the_mcp_proxy_names_the_extra_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["headstart-mcp-proxy", "--help"])
    monkeypatch.setattr(mcp_proxy_script, "find_spec", lambda _name: None)
    with pytest.raises(SystemExit) as ended:
        mcp_proxy_script.main()
    assert ended.value.code == 2
    assert capsys.readouterr() == (
        "",
        "error: mcp is not installed: pip install 'headstart[mcp]'\n",
    )
