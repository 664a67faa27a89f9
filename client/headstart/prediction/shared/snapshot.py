"""What is served of a `FleetModel`: the model, values that are shared, and which are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headstart.prediction.model import CallModel
from headstart.prediction.number_checks import require, require_counts, require_hashes
from headstart.prediction.shared.snapshot_size import STEPS, reduced
from headstart.prediction.state_format import model_parts, packed, read_model, unpacked

if TYPE_CHECKING:
    from headstart.prediction.shared.fleet_model import FleetModel

VERSION: Final = 1
_MAGIC: Final = b"headstart-shared-model "
_MOST_WANTED: Final = 256  # of constants, and of skeletons
_LARGEST: Final = 8 << 20  # bytes of JSON: the tables of a model, all full, have less than 5 MB


class SharedSnapshot(NamedTuple):
    """A snapshot as an executor reads it."""

    events: int  # applied: a snapshot that differs has another number, or is of another key
    check: int | None
    model: CallModel
    covered: dict[str, int]  # the last sequence by executor
    covers_all: bool  # there are no other executors
    constants: dict[int, str]  # JSON texts by hash
    skeletons: dict[int, str]
    calls: dict[int, tuple[int, ...]]
    wanted_constants: list[int]
    wanted_skeletons: list[int]


def served_snapshot(fleet: FleetModel, limit: int) -> bytes:
    """Return a snapshot of at most `limit` bytes: see `snapshot_size` for what is left out."""
    parts, data = _parts(fleet), b""
    for shares in STEPS:
        data = packed(_MAGIC, VERSION, reduced(parts, shares))
        if len(data) <= limit:
            return data
    nothing = parts | model_parts(CallModel())  # names of tools alone are more than the limit
    return packed(_MAGIC, VERSION, reduced(nothing, STEPS[-1]))


def read_snapshot(data: bytes) -> SharedSnapshot:
    """Return what `FleetModel.snapshot()` gave. Raises `UnknownState`."""
    return unpacked(data, _MAGIC, VERSION, _read, most=_LARGEST)


def _parts(fleet: FleetModel) -> dict[str, Any]:
    return {
        "events": fleet.version,
        "check": fleet.check,
        **model_parts(fleet.model),
        "covered": fleet.covered.served(),
        "constants": _pairs(fleet.constants.known()),
        "skeletons": _pairs(fleet.skeletons.known()),
        "calls": _pairs(fleet.calls.old | fleet.calls.young),
        "wanted": [_wanted_constants(fleet), _wanted_skeletons(fleet)],
    }


def _wanted_constants(fleet: FleetModel) -> list[int]:
    """Return what leaves offer, the lately learned first, then what whole calls are made of."""
    leaves = reversed(fleet.model.arguments.leaves.values())
    offered = [key for leaf in leaves for key in leaf.top]
    for table in (fleet.calls.young, fleet.calls.old):
        for _, *constants in reversed(table.values()):
            offered += constants
    return fleet.constants.wanted(offered)[:_MOST_WANTED]


def _wanted_skeletons(fleet: FleetModel) -> list[int]:
    counted = reversed(fleet.model.arguments.skeletons.values())
    return fleet.skeletons.wanted(key for counts in counted for key in counts)[:_MOST_WANTED]


def _pairs(values: dict[int, Any]) -> list[Any]:
    return [list(values), list(values.values())]


def _read(state: dict[str, Any]) -> SharedSnapshot:
    covered, covers_all = state["covered"]
    constants, skeletons = _dict_of(state["constants"]), _dict_of(state["skeletons"])
    calls = {call: tuple(parts) for call, parts in _dict_of(state["calls"]).items()}
    found = SharedSnapshot(
        state["events"], state["check"], read_model(state), covered, covers_all,
        constants, skeletons, calls, *state["wanted"],
    )  # fmt: skip
    _check(found)
    return found


def _check(found: SharedSnapshot) -> None:
    """Raise `ValueError` or `TypeError` for wrong members; texts are checked by their hash."""
    require_counts([found.events], "events")
    require_hashes([] if found.check is None else [found.check], "check")
    require(set(map(type, found.covered)) <= {str}, "executors")
    require_counts(found.covered.values(), "sequences")
    require(type(found.covers_all) is bool, "executors")
    for texts in (found.constants, found.skeletons):
        require_hashes(texts, "values")
        require(set(map(type, texts.values())) <= {str}, "values")
    require_hashes(found.calls, "calls")
    for parts in found.calls.values():
        require(len(parts) > 0, "calls")
        require_hashes(parts, "calls")
    for wanted in (found.wanted_constants, found.wanted_skeletons):
        require_hashes(wanted, "wanted values")
        require(type(wanted) is list and len(wanted) <= _MOST_WANTED, "wanted values")


def _dict_of(pairs: list[Any]) -> dict[int, Any]:
    keys, values = pairs
    return dict(zip(keys, values, strict=True))
