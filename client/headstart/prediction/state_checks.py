"""Checks what was read as a model, so that no guess fails later or computes with wrong numbers.

A state may come from a Redis or a file that something else has written. What passes has finite
weights, and counts of which no probability above 1 follows.
"""

from __future__ import annotations

from typing import Any, Final

from headstart.prediction.argument_checks import check_arguments
from headstart.prediction.call_memory import followers_of
from headstart.prediction.call_ranking import CallRanking
from headstart.prediction.model import CallModel
from headstart.prediction.next_tool.context_counts import SYMBOL_BITS, SYMBOL_MASK, unpacked
from headstart.prediction.next_tool.tool_model import ToolModel
from headstart.prediction.number_checks import (
    checked_values,
    require,
    require_counts,
    require_hashes,
    require_weights,
)

_LARGEST_TOTAL: Final = 1 << 16


def check_model(model: CallModel) -> None:
    """Raise `ValueError`, or another error of wrong types, if a model cannot be used."""
    fresh = CallModel()
    require_counts([model.version], "version")
    _check_tools(model.tools, fresh.tools)
    check_arguments(model.arguments)
    _check_ranking(model.ranking, fresh.ranking)
    for value in checked_values(model.memory.table, "memory of calls"):
        require_hashes(followers_of(value), "memory of calls")


def _check_tools(tools: ToolModel, fresh: ToolModel) -> None:
    require_weights(tools.weights, fresh.weights, "weights of contexts")
    require_weights(tools.named_weights, fresh.named_weights, "weights of names")
    require(len(tools.escapes) == len(fresh.escapes), "escapes")
    for escape in tools.escapes:
        require_weights(escape, fresh.escapes[0], "escapes")
        require(0.0 <= escape[1] <= escape[0], "escapes")
    for counts in checked_values(tools.contexts.table, "contexts"):
        _check_counts(counts, len(tools.symbols))
    for packed in checked_values(tools.words.table, "words"):
        require(0 < len(packed) <= 32 and len(packed) % 4 == 0, "weights of words")


def _check_counts(counts: Any, symbols: int) -> None:
    """Check what followed a context: `Counts`."""
    if type(counts) is int:
        require(0 < counts >> SYMBOL_BITS < _LARGEST_TOTAL, "counts of a context")
        require(counts & SYMBOL_MASK < symbols, "tools of a context")
        return
    require(len(counts) % 4 == 2 and len(counts) > 2, "counts of a context")
    total, *flat = unpacked(counts)
    require(total == sum(flat[1::2]) and 0 not in flat[1::2], "counts of a context")
    require(max(flat[::2]) < symbols, "tools of a context")


def _check_ranking(ranking: CallRanking, fresh: CallRanking) -> None:
    require_weights(ranking.weights, fresh.weights, "weights of calls")
    require_weights(ranking.tries_weights, fresh.tries_weights, "weights of calls")
    require_weights([ranking.repeated_weight], [0.0], "weights of calls")
    require(set(map(type, ranking.tool_weights)) <= {str}, "weights of tools")
    for weights in ranking.tool_weights.values():
        require_weights(weights, [0.0, 0.0], "weights of tools")
    points, known = ranking.correction.points, fresh.correction.points
    require_weights(points, known, "correction")
    require(all(0.0 <= point <= 1.0 for point in points), "correction")
