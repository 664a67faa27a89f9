"""Options: one that is misspelt, or whose value cannot be used, is refused where it is given."""

from __future__ import annotations

import asyncio
import math
import re
from typing import Any

import pytest

import headstart
from headstart.arguments.checks import InvalidArgument
from headstart.speculation.speculator import AsyncSpeculator, Speculator
from headstart.speculation.tool_hints import read_hints
from headstart.thresholds.reader import AsyncThresholds, Thresholds

NOWHERE = "redis://127.0.0.1:1"


def speculators(**options: Any) -> list[Any]:
    return [
        Speculator(Thresholds(NOWHERE), **options),
        AsyncSpeculator(AsyncThresholds(NOWHERE), **options),
    ]


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("allow", "allowed"), ("dangrous", "dangerous"), ("Dangerous", "dangerous"),
        ("anotations", "annotations"), ("annotation", "annotations"),
        ("wasted_per_min", "wasted_per_minute"), ("explore", "exploration"), ("seeds", "seed"),
    ],
)  # fmt: skip
def test_an_unknown_option_is_refused_naming_the_nearest(misspelt: str, meant: str) -> None:
    for kind, reader in ((Speculator, Thresholds), (AsyncSpeculator, AsyncThresholds)):
        with pytest.raises(TypeError, match=f"{kind.__name__}.*{misspelt!r}.*{meant!r}"):
            kind(reader(NOWHERE), **{misspelt: ["pay"]})  # type: ignore[operator]


@pytest.mark.parametrize(
    ("settings", "misspelt", "meant"),
    [
        (headstart.SpoolSettings, "on_ful", "on_full"),
        (headstart.SpoolSettings, "limit", "limit_bytes"),
        (headstart.Scrubbing, "pattern", "patterns"),
        (headstart.Pattern, "ignorecase", "ignore_case"),
    ],
)
def test_unknown_settings_are_refused_naming_the_nearest(
    settings: Any, misspelt: str, meant: str
) -> None:
    message = f"{settings.__name__}.*{misspelt!r}; did you mean {meant!r}"
    with pytest.raises(InvalidArgument, match=message):
        settings(**{misspelt: 1})


def test_an_unknown_option_lists_all_options() -> None:
    with pytest.raises(TypeError, match=r"'zzz'; it has allowed, annotations, clock, dangerous"):
        Speculator(Thresholds(NOWHERE), zzz=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, value) for name in ("allowed", "dangerous") for value in
          ("pay", b"pay", None, 1, True, {"pay": False}, ["pay", 1], [""], [None])),
        *(("annotations", value) for value in
          ("pay", ["pay"], {"pay"}, {"pay": "destructive"}, {"pay": True}, {"pay": ["read"]},
           {1: {}}, {"": {}})),
        *(("exploration", value) for value in (math.nan, -0.1, 1.1, "0.1", True, None)),
        *(("wasted_per_minute", value) for value in (math.nan, -1, "60", False, [1])),
        *(("seed", value) for value in ("7", 7.0, True)),
        *(("clock", value) for value in (None, 1.0, "time")),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_refused_naming_its_option(
    option: str, value: object
) -> None:
    for error in (TypeError, ValueError):
        with pytest.raises(error, match=option):
            speculators(**{option: value})


def test_values_that_can_be_used() -> None:
    speculators(
        allowed=iter(["search"]), dangerous=("pay",), annotations={"pay": None}, exploration=1,
        wasted_per_minute=math.inf, seed=None,
    )  # fmt: skip
    speculators(allowed=frozenset(), annotations={}, wasted_per_minute=0)


def test_an_emitter_emits() -> None:
    with pytest.raises(InvalidArgument, match="emitter"):
        AsyncSpeculator(AsyncThresholds(NOWHERE), {"search"})  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", [math.nan, math.inf, -1.0, "5", None, True])
def test_the_wasted_cost_must_be_a_number(cost: Any) -> None:
    speculator, _ = speculators()
    with pytest.raises(ValueError, match="cost"):
        speculator.missed(cost)
    assert speculator.stats()["wasted"] == 0.0


def test_levels_are_names() -> None:
    with pytest.raises(TypeError, match="levels"):
        Thresholds(NOWHERE, levels="domain")


@pytest.mark.parametrize(
    ("misspelt", "meant"), [("tenent", "tenant"), ("user", "user_id"), ("taskid", "task_id")]
)
def test_a_field_that_no_event_has_is_refused_naming_the_nearest(misspelt: str, meant: str) -> None:
    fields: dict[str, Any] = {"workflow_type": "refund", "workflow_id": "w1", misspelt: "x"}
    with pytest.raises(TypeError, match=f"task_complete.*{misspelt!r}.*{meant!r}"):
        headstart.task_complete(**fields)


@pytest.mark.parametrize(
    ("name", "field"),
    [("guess", "tool_id"), ("speculated", "speculated"), ("not_startable", "not_startable"),
     ("mode", "mode"), ("failed", "failed")],
)  # fmt: skip
def test_a_field_of_the_prediction_is_refused_naming_where_it_goes(name: str, field: str) -> None:
    fields: dict[str, Any] = {"workflow_type": "refund", "workflow_id": "w1", name: "x"}
    wanted = re.escape(f"data={{'prediction': {{'{field}': ...}}}}")
    with pytest.raises(TypeError, match=rf"task_complete\(\).*'{name}'.*{wanted}"):
        headstart.task_complete(**fields)


def test_a_reader_of_the_other_kind_is_refused() -> None:
    for make, reader in (
        (AsyncSpeculator, Thresholds(NOWHERE)), (Speculator, AsyncThresholds(NOWHERE)),
        (AsyncSpeculator, NOWHERE), (Speculator, None),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match=r"^thresholds must be of class"):
            make(reader)  # type: ignore[arg-type, operator]


@pytest.mark.parametrize("url", ["REDIS://h:1/0", "redis://h:1/0?db=a", "redis://h:1/0?dbb=1"])
def test_a_url_that_redis_can_never_take_is_refused(url: str) -> None:
    for reader in (Thresholds, AsyncThresholds):
        with pytest.raises(InvalidArgument, match="redis_url"):
            reader(url)


@pytest.mark.parametrize(
    "hints_given",
    [
        {"requires_confirmation": True}, {"require_confirmation": True}, {"kind": "unapproved"},
        {"approval_mode": "always_require"}, {"require_approval": "always"},
        {"metadata": {"approval_required": True}}, {"human_in_the_loop": True},
    ],
)  # fmt: skip
def test_a_tool_whose_calls_a_person_approves_never_runs(hints_given: dict[str, Any]) -> None:
    hints = {"readOnlyHint": True, **hints_given}
    assert read_hints("pay", hints).approval
    assert not read_hints("pay", {"readOnlyHint": True, "approval_mode": "never_require"}).approval


@pytest.mark.parametrize(
    ("given", "meant"), [("agent", "agent_id"), ("agentid", "agent_id"), ("tenants", "tenant")]
)
def test_a_misspelt_argument_of_mode_is_refused_naming_the_nearest(given: str, meant: str) -> None:
    message = rf"Thresholds.mode\(\) has no argument '{given}'; did you mean '{meant}'"
    with Thresholds(NOWHERE) as reader, pytest.raises(InvalidArgument, match=f"^{message}"):
        reader.mode(**{given: "a"})

    async def asynchronously() -> None:
        async with AsyncThresholds(NOWHERE) as reader:
            with pytest.raises(InvalidArgument, match=f"^Async{message}"):
                await reader.mode(**{given: "a"})

    asyncio.run(asynchronously())
