"""Options of `headstart config` that cannot be used are refused, with the option's name."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from cli.config.group import app

THRESHOLD = ("set", "threshold", "--workflow-type", "w", "--speculate", "1")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("set", "mode", "off", "--tenant", ""), "--tenant"),
        (("set", "mode", "off", "--tenant", "t", "--agent", ""), "--agent"),
        (("set", "mode", "off", "--tenant", "t" * 257), "--tenant"),
        (("set", "mode", "off", "--tenant", "a\x1fb"), "--tenant"),
        (("unset", "mode", "--tenant", ""), "--tenant"),
        (("get", "mode", "--tenant", ""), "--tenant"),
        ((*THRESHOLD, "--tenant", ""), "--tenant"),
        ((*THRESHOLD, "--tool", ""), "--tool"),
        ((*THRESHOLD[:3], "", *THRESHOLD[4:]), "--workflow-type"),
        ((*THRESHOLD, "--context", "domain=retail", "--domain", "air"), "'domain' is given twice"),
        ((*THRESHOLD, "--context", "domain=a", "--context", "domain=b"), "given twice"),
        ((*THRESHOLD, "--for", "99999999d"), "--for"),
        ((*THRESHOLD, "--for", "3651d"), "longer than 3,650 days"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(
    given: Any, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    ended = CliRunner().invoke(app, [*given], env={"TERMINAL_WIDTH": "400"})
    assert ended.exit_code == 2, ended.output
    assert named in ended.output
