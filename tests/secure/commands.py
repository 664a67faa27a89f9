"""Runs commands in the process of the tests, for what they say when they fail."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from cli.main import main


class Command:
    """Runs a command in this process, with nothing but the given settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, environment: Mapping[str, str], *words: str) -> tuple[int, str]:
        """Return the exit code and the one line of the error."""
        for name, value in environment.items():
            self._monkeypatch.setenv(name, value)
        self._monkeypatch.setattr(sys, "argv", ["headstart", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        [line] = self._capsys.readouterr().err.splitlines()
        return int(ended.value.code or 0), line
