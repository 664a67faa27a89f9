"""Which errors are of Headstart's own code."""

from __future__ import annotations

import pytest

from cli.support.output import report_errors


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (KeyError("get_user"), True),
        (IndexError("list index out of range"), True),
        (LookupError("there is no topic 'x'"), False),
    ],
)
def test_a_failed_subscript_is_a_fault(
    error: Exception, fault: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        report_errors(command)
    assert ended.value.code == 1
    found = capsys.readouterr().err
    assert ("this is a fault of Headstart" in found) == ("Traceback" in found) == fault
