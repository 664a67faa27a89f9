"""The state of a predictor as bytes: a header with the version, then JSON, compressed.

The same state gives the same bytes. It contains constants and whole calls of users: `keep_values`
leaves them out, and what is left has hashes, names of tools, and numbers only.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from headstart.prediction.argument_values.argument_model import ArgumentModel
from headstart.prediction.argument_values.leaf_model import LeafModel
from headstart.prediction.bounded_tables import RecentTable
from headstart.prediction.call_ranking import CallRanking
from headstart.prediction.history.skeletons import Skeleton
from headstart.prediction.model import CallModel
from headstart.prediction.next_tool.tool_model import ToolModel
from headstart.prediction.private_values import PrivateValues
from headstart.prediction.stable_hash import Hash
from headstart.prediction.state_checks import check_model

VERSION: Final = 1
_MAGIC: Final = b"headstart-predictor "
_LARGEST: Final = 64 << 20  # bytes, unpacked: more is no state that this module wrote
Value = TypeVar("Value")


class UnknownState(ValueError):
    """The bytes are no state of a predictor, or of a newer version, or made with another key."""


class NewerState(UnknownState):
    """A newer version has written the state: upgrade what reads it."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"this state has version {found}, known is {known}; upgrade the client")
        self.found, self.known = found, known


def state_bytes(model: CallModel, values: PrivateValues, key_check: int, *,
                keep_values: bool) -> bytes:  # fmt: skip
    """Return a predictor's state."""
    state = {
        "key": key_check,
        **model_parts(model),
        "values": _values(values) if keep_values else None,
    }
    return packed(_MAGIC, VERSION, state)


def read_state(data: bytes, key_check: int, hash_any: Hash) -> tuple[CallModel, PrivateValues]:
    """Return what `state_bytes()` was given. Raises `UnknownState`."""

    def read(state: dict[str, Any]) -> tuple[CallModel, PrivateValues]:
        if state["key"] != key_check:
            raise UnknownState("this state was made with another hash_key; pass the same key")
        return read_model(state), _read_values(state["values"], hash_any)

    return unpacked(data, _MAGIC, VERSION, read)


def packed(magic: bytes, version: int, state: dict[str, Any]) -> bytes:
    """Return a header with a version, then a state, which `bytes` may be part of, compressed."""
    text = json.dumps(state, separators=(",", ":"), default=bytes.hex).encode()
    return magic + b"%d\n" % version + zlib.compress(text)


def unpacked(data: bytes, magic: bytes, version: int, read: Callable[[dict[str, Any]], Value],
             *, most: int = _LARGEST) -> Value:  # fmt: skip
    """Return what `read` makes of the state that `packed()` was given, of at most `most` bytes.

    Raises `UnknownState`.
    """
    try:
        return read(json.loads(_text_of(data, magic, version, most)))
    except UnknownState:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
            struct.error, zlib.error) as error:  # fmt: skip
        raise UnknownState("this state is damaged; begin with an empty predictor") from error


def _text_of(data: bytes, magic: bytes, known: int, most: int) -> bytes:
    header, _, rest = data.partition(b"\n")
    version = header.removeprefix(magic)
    if version == header or not (version.isdigit() and len(version) < 10):
        raise UnknownState("these bytes are no state of a predictor")
    if int(version) > known:
        raise NewerState(int(version), known)
    if int(version) < known:
        raise UnknownState(f"this state has version {int(version)}, which is not read any more")
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(rest, most)
    if not unpacker.eof:
        raise UnknownState("this state is damaged; begin with an empty predictor")
    return found


def model_parts(model: CallModel) -> dict[str, Any]:
    """Return a model's state as members of a JSON object; `bytes` are part of it."""
    return {
        "version": model.version,
        "tools": _tools(model.tools),
        "arguments": _arguments(model.arguments),
        "ranking": _ranking(model.ranking),
        "memory": table_parts(model.memory.table),
    }


def read_model(state: dict[str, Any]) -> CallModel:
    """Return the model of which `model_parts()` was made; raises what reading wrong JSON raises."""
    model = CallModel()
    model.version = state["version"]
    _read_tools(model.tools, state["tools"])
    _read_arguments(model.arguments, state["arguments"])
    _read_ranking(model.ranking, state["ranking"])
    read_table(model.memory.table, state["memory"], _bytes_of)
    check_model(model)
    return model


def table_parts(table: RecentTable[Any]) -> list[Any]:
    """Return the state of a table."""
    return [table.weight, *[[list(each), list(each.values())] for each in (table.old, table.young)]]


def read_table(table: RecentTable[Any], state: list[Any], value_of: Any) -> None:
    """Put the state that `table_parts()` gave into a table, each value through a function."""
    table.weight, *generations = state
    table.old, table.young = (
        dict(zip(keys, map(value_of, values), strict=True)) for keys, values in generations
    )


def tuple_of(value: Any) -> Any:
    """Return a list as a tuple, anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


def _bytes_of(value: Any) -> Any:
    return bytes.fromhex(value) if isinstance(value, str) else value


def _tools(tools: ToolModel) -> list[Any]:
    return [tools.symbols, tools.weights, tools.named_weights, tools.escapes,
            table_parts(tools.contexts.table), table_parts(tools.words.table)]  # fmt: skip


def _read_tools(tools: ToolModel, state: list[Any]) -> None:
    symbols, tools.weights, tools.named_weights, tools.escapes, contexts, words = state
    for symbol in symbols:
        tools.add_symbol(symbol)
    read_table(tools.contexts.table, contexts, _bytes_of)
    read_table(tools.words.table, words, _bytes_of)


def _pairs(table: dict[int, Any]) -> list[Any]:
    return [list(table), list(table.values())]


def _arguments(arguments: ArgumentModel) -> list[Any]:
    leaves = [
        [identity, leaf.specs, leaf.identities, list(leaf.numbers), bytes(leaf.after),
         _pairs(leaf.constants), leaf.count, leaf.constant_share, list(leaf.flag_weights), leaf.top,
         leaf.dependent]
        for identity, leaf in arguments.leaves.items()
    ]  # fmt: skip
    skeletons = [[key, *_pairs(counts)] for key, counts in arguments.skeletons.items()]
    return [leaves, skeletons, list(arguments.flag_weights)]


def _read_arguments(arguments: ArgumentModel, state: list[Any]) -> None:
    leaves, skeletons, flag_weights = state
    arguments.flag_weights = array("f", flag_weights)
    for key, identities, counts in skeletons:
        arguments.skeletons[key] = dict(zip(identities, counts, strict=True))
    for identity, *fields in leaves:
        arguments.leaves[identity] = _leaf(fields)


def _leaf(fields: Sequence[Any]) -> LeafModel:
    leaf = LeafModel()
    specs, leaf.identities, numbers, after, constants = fields[:5]
    leaf.specs = [tuple(spec) for spec in specs]
    leaf.numbers, leaf.after = array("f", numbers), bytearray.fromhex(after)
    leaf.constants = dict(zip(*constants, strict=True))
    leaf.count, leaf.constant_share, flag_weights, top, leaf.dependent = fields[5:]
    leaf.flag_weights, leaf.top = array("f", flag_weights), tuple(top)
    return leaf


def _ranking(ranking: CallRanking) -> list[Any]:
    return [ranking.weights, ranking.tries_weights, ranking.repeated_weight, ranking.tool_weights,
            ranking.correction.points]  # fmt: skip


def _read_ranking(ranking: CallRanking, state: list[Any]) -> None:
    ranking.weights, ranking.tries_weights, ranking.repeated_weight = state[:3]
    ranking.tool_weights, ranking.correction.points = state[3:]


def _values(values: PrivateValues) -> list[Any]:
    skeletons: list[Any] = [values.skeletons.table.weight]
    for table in (values.skeletons.table.old, values.skeletons.table.young):
        entries = [[s.tool, s.paths, s.structure, writers] for s, writers in table.values()]
        skeletons.append([list(table), entries])
    return [table_parts(values.constants.table), skeletons, table_parts(values.calls)]


def _read_values(state: list[Any] | None, hash_any: Hash) -> PrivateValues:
    values = PrivateValues()
    if state is None:
        return values
    constants, skeletons, calls = state
    read_table(values.constants.table, constants, lambda e: (e[0], tuple_of(e[1])))
    read_table(values.calls, calls, bytes.fromhex)
    read_table(
        values.skeletons.table, skeletons,
        lambda e: (Skeleton(e[0], e[1], e[2], hash_any), tuple_of(e[3])),
    )  # fmt: skip
    return values
