"""Laws of files of outcomes: every field is taken as it is meant, or its line is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


LINE = {"context": {"workflow_type": "refund"}, "confidence": 0.9, "correct": True}
LINE |= {"gain": 100, "cost": 50}


@pytest.mark.parametrize("value", [1, 0, 1.0, "true", "yes", [], {}])
def test_speculated_is_true_or_false(tmp_path: Path, value: Any) -> None:
    with pytest.raises(OutcomeError, match=r"line 1: speculated must be true or false, not "):
        outcomes(tmp_path, json.dumps({**LINE, "speculated": value}))


@pytest.mark.parametrize(
    ("value", "speculated"), [(True, True), (False, False), (None, False)]
)  # fmt: skip
def test_speculated_may_be_missing(tmp_path: Path, value: Any, speculated: bool) -> None:
    (made,) = outcomes(tmp_path, json.dumps({**LINE, "speculated": value}))
    assert made.speculated is speculated


@pytest.mark.parametrize(
    ("cell", "speculated"), [("yes", True), ("1.0", True), ("FALSE", False), ("", False)]
)
def test_speculated_in_csv_is_read_as_correct_is(
    tmp_path: Path, cell: str, speculated: bool
) -> None:
    (made,) = outcomes(tmp_path, f"{HEADER},speculated\nrefund,0.9,true,100,50,{cell}\n")
    assert made.speculated is speculated


@pytest.mark.parametrize("cell", ["2", "maybe", "started"])
def test_speculated_in_csv_that_is_neither_is_refused(tmp_path: Path, cell: str) -> None:
    with pytest.raises(OutcomeError, match=r"line 2: speculated must be true or false"):
        outcomes(tmp_path, f"{HEADER},speculated\nrefund,0.9,true,100,50,{cell}\n")


@pytest.mark.parametrize("key", ["workflow_type", "domain", "user_id", "tool", "tool_id"])
def test_a_key_of_the_context_beside_it_is_refused(tmp_path: Path, key: str) -> None:
    line = {"confidence": 0.9, "correct": True, key: "a"}
    with pytest.raises(OutcomeError, match=f"line 1: {key} belongs in context; give"):
        outcomes(tmp_path, json.dumps(line))


def test_a_level_of_ones_own_beside_the_context_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({**LINE, "region": "eu"}))
    with pytest.raises(OutcomeError, match="line 1: region belongs in context"):
        list(read_outcomes(file, ("region",)))
    assert len(list(read_outcomes(file, ()))) == 1


@pytest.mark.parametrize("name", ["gain", "cost"])
def test_a_field_of_another_name_is_refused(tmp_path: Path, name: str) -> None:
    line = {key: value for key, value in LINE.items() if key != name}
    said = rf"{name}_ms is no field of an outcome; did you mean {name}\?"
    with pytest.raises(OutcomeError, match=f"line 1: {said}"):
        outcomes(tmp_path, json.dumps({**line, f"{name}_ms": 100}))
    text = f"{HEADER.replace(name, name + '_ms')}\nrefund,0.9,true,100,50\n"
    with pytest.raises(OutcomeError, match=f"line 2: {said}"):
        outcomes(tmp_path, text)
    assert len(outcomes(tmp_path, json.dumps({**LINE, f"{name}_ms": 100}))) == 1
