"""Laws of files of outcomes: every field is taken as it is meant, or its line is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from learners.outcome import Outcome
from replay.outcomes import OutcomeError, read_outcomes

HEADER = "workflow_type,confidence,correct,gain,cost"


def outcomes(folder: Path, text: str) -> list[Outcome]:
    file = folder / "outcomes"
    file.write_text(text)
    return [judged.outcome for judged in read_outcomes(file, ())]


@pytest.mark.parametrize(
    ("cell", "reason"), [("tool", "tool"), (" mode ", "mode"), ("", ""), ("NaN", ""), ("  ", "")]
)
def test_a_guess_that_could_not_be_started_is_told_by_a_column(
    tmp_path: Path, cell: str, reason: str
) -> None:
    text = f"{HEADER},not_startable\nrefund,0.9,true,100,50,{cell}\n"
    assert [each.not_startable for each in outcomes(tmp_path, text)] == [reason]


@pytest.mark.parametrize("cell", ["true", "0", "FALSE"])
def test_not_startable_in_csv_is_a_reason(tmp_path: Path, cell: str) -> None:
    with pytest.raises(
        OutcomeError, match=r"line 2: not_startable must be a text, not (Tru|Fals)e"
    ):
        outcomes(tmp_path, f"{HEADER},not_startable\nrefund,0.9,true,100,50,{cell}\n")
