"""`thresholds show` prints no terminal control sequences, whatever an override contains."""

from __future__ import annotations

import pytest

from cli.thresholds.show import _show_why
from console.inspection.explain import explained

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e\nspeculate 0.1"


def test_text_of_an_override_is_printed_safely(capsys: pytest.CaptureFixture[str]) -> None:
    path = "workflow_type=refund"
    override = {"path": "", "tool": HOSTILE, "speculate": 0.9, "by": HOSTILE, "reason": HOSTILE}
    _show_why(explained([None], [override], [path], HOSTILE, 0))
    output = capsys.readouterr().out
    assert "override" in output
    assert all(each.isprintable() or each == "\n" for each in output)
    assert not any(line.startswith("speculate 0.1") for line in output.splitlines())
