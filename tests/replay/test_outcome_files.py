"""Laws of files of outcomes: every field is taken as it is meant, or its line is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from learners.outcome import Outcome
from replay.predictions.outcomes_file import OutcomeError, read_outcomes

HEADER = "workflow_type,confidence,correct,gain,cost"


def outcomes(folder: Path, text: str) -> list[Outcome]:
    file = folder / "outcomes"
    file.write_text(text)
    return [judged.outcome for judged in read_outcomes(file, ())]


@pytest.mark.parametrize(
    ("cell", "reason"), [("tool", "tool"), (" mode ", "mode"), ("", ""), ("NaN", ""), ("  ", "")]
)
def test_a_guess_that_could_not_be_started_has_a_column(
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
    message = rf"{name}_ms is not a field of an outcome; did you mean {name}\?"
    with pytest.raises(OutcomeError, match=f"line 1: {message}"):
        outcomes(tmp_path, json.dumps({**line, f"{name}_ms": 100}))
    text = f"{HEADER.replace(name, name + '_ms')}\nrefund,0.9,true,100,50\n"
    with pytest.raises(OutcomeError, match=f"line 2: {message}"):
        outcomes(tmp_path, text)
    assert len(outcomes(tmp_path, json.dumps({**LINE, f"{name}_ms": 100}))) == 1


LEVELS = ("domain", "user_id")
NEAR = {
    "user_id": ("user", "userid", "userId", "User ID", "USER_ID", "usr_id", "uesr_id", "uid"),
    "workflow_type": ("workflowType", "workflow", "Workflow-Type", "workflow_typ", "type"),
    "domain": ("Domain", "domains", "domian"),
}
FIELDS = {
    "at": ("timestamp", "timestamp_ms", "timeStamp", "At", "time", "ts"),
    "gain": ("Gain", "gains", "gainMs", "gain_s"),
    "cost": ("COST", "costMs", "wasted_ms"),
    "speculated": ("was_started", "wasStarted", "Speculated", "started"),
    "not_startable": ("notStartable",),
    "workflow_id": ("workflowId",),
}
VALUES: dict[str, Any] = {"at": 1_760_000_000_000, "gain": 3, "cost": 3, "speculated": True}


def read(folder: Path, text: str, levels: tuple[str, ...] = LEVELS) -> list[tuple[str, ...]]:
    file = folder / "outcomes"
    file.write_text(text)
    return [judged.paths for judged in read_outcomes(file, levels)]


def pairs(names: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(each, meant) for meant, near in names.items() for each in near]


@pytest.mark.parametrize(("name", "meant"), pairs(NEAR))
def test_nearly_a_level_is_refused(tmp_path: Path, name: str, meant: str) -> None:
    message = rf"{name} is not a key of the context that counts; did you mean {meant}\?"
    with pytest.raises(OutcomeError, match=f"line 2: {message}"):
        read(tmp_path, f"{name},confidence,correct\na,0.9,true\n")
    line = {"confidence": 0.9, "correct": True}
    with pytest.raises(OutcomeError, match=f"line 1: {message}"):
        read(tmp_path, json.dumps({**line, "context": {name: "a"}}))
    with pytest.raises(OutcomeError, match=f'{name} belongs in context; .*"{meant}"'):
        read(tmp_path, json.dumps({**line, name: "a", "context": {}}))
    both = {"context": {name: "a", meant: "b"}}
    assert read(tmp_path, json.dumps({**line, **both})) == read(
        tmp_path, json.dumps({**line, "context": {meant: "b"}})
    )


@pytest.mark.parametrize(("name", "meant"), pairs(FIELDS))
def test_nearly_a_field_is_refused(tmp_path: Path, name: str, meant: str) -> None:
    message = rf"{name} is not a field of an outcome; did you mean {meant}\?"
    line: dict[str, Any] = {"confidence": 0.9, "correct": True}
    value = VALUES.get(meant, "w1")
    with pytest.raises(OutcomeError, match=f"line 1: {message}"):
        read(tmp_path, json.dumps({**line, "context": {}, name: value}))
    with pytest.raises(OutcomeError, match=f"line 2: {message}"):
        read(tmp_path, f"confidence,correct,{name}\n0.9,true,{value}\n")


@pytest.mark.parametrize("name", ["Correct", "was_correct"])
def test_nearly_a_field_that_has_to_be_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutcomeError, match=rf"{name} is not a field .* did you mean correct\?"):
        read(tmp_path, f"confidence,{name}\n0.9,true\n")


@pytest.mark.parametrize("name", ["tenant", "tenantId", "Tenant"])
def test_outcomes_name_no_tenant_but_as_a_level(tmp_path: Path, name: str) -> None:
    text = f"{name},confidence,correct\nacme,0.9,true\n"
    with pytest.raises(OutcomeError, match=f"line 2: {name}: an outcome names no tenant"):
        read(tmp_path, text)
    if name == "tenant":
        assert read(tmp_path, text, ("tenant",)) == [("default", "workflow_type=/tenant=acme")]


@pytest.mark.parametrize(
    "name",
    ["customer_id", "user_tier", "user_ip", "user_name", "workflow_step", "workflow_version",
     "host", "id", "run_id", "team", "region", "tool", "cost_center", "time_of_day", "label"],
)  # fmt: skip
def test_keys_that_are_content_are_taken(tmp_path: Path, name: str) -> None:
    text = f"{name},confidence,correct,workflow_type\na,0.9,true,refund\n"
    assert read(tmp_path, text) == [("default", "workflow_type=refund")]
    line = {**LINE, "context": {"workflow_type": "refund", name: "a"}}
    assert read(tmp_path, json.dumps(line)) == [("default", "workflow_type=refund")]


@pytest.mark.parametrize(
    ("name", "level"), [("Region", "region"), ("region_id", "region"), ("team", "team_id")]
)
def test_levels_of_ones_own_are_kept_from_near_names_too(
    tmp_path: Path, name: str, level: str
) -> None:
    text = f"{name},confidence,correct\na,0.9,true\n"
    with pytest.raises(OutcomeError, match=rf"{name} .* did you mean {level}\?"):
        read(tmp_path, text, (level,))


@pytest.mark.parametrize("name", ["context", "Context"])
def test_a_context_in_a_cell_is_refused(tmp_path: Path, name: str) -> None:
    text = f'{name},confidence,correct\n"{{""user_id"": ""u""}}",0.9,true\n'
    with pytest.raises(OutcomeError, match=f"line 2: {name} is not read as a context"):
        read(tmp_path, text)


def test_a_field_within_the_context_is_refused(tmp_path: Path) -> None:
    line = {"confidence": 0.9, "correct": True, "context": {"gain": 5}}
    with pytest.raises(OutcomeError, match="gain belongs beside context, not in it"):
        read(tmp_path, json.dumps(line))


def test_a_spreadsheets_date_is_no_time(tmp_path: Path) -> None:
    line: dict[str, Any] = {"context": {"workflow_type": "a"}, "confidence": 0.9, "correct": True}
    with pytest.raises(OutcomeError, match=r"at: 45292\.5 is no Unix ms, perhaps a spreadsheet"):
        read(tmp_path, json.dumps({**line, "at": 45_292.5}))
    for at in (1, 45_292, 1_760_000_000_000.25):
        assert read(tmp_path, json.dumps({**line, "at": at}))
