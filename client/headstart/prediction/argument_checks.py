"""Checks of what was read as a model of arguments."""

from __future__ import annotations

from typing import Final

from headstart.prediction.argument_values.argument_model import ArgumentModel
from headstart.prediction.argument_values.leaf_model import (
    FLAGS,
    MOST_CONSTANTS,
    MOST_TEMPLATES,
    PLACES,
    LeafModel,
)
from headstart.prediction.number_checks import (
    require,
    require_counts,
    require_hashes,
    require_weights,
)
from headstart.prediction.shared.record_limits import HAS_PICK, HASH_PARTS, LARGEST_PICK

_MOST_ENTRIES: Final = 1_000
_LARGEST_TRIES: Final = 61.0


def check_arguments(arguments: ArgumentModel) -> None:
    """Raise `ValueError`, or another error of wrong types, if a model cannot be used."""
    require_weights(arguments.flag_weights, range(FLAGS), "weights of flags")
    require_hashes(arguments.skeletons, "contexts of skeletons")
    require(len(arguments.skeletons) <= _MOST_ENTRIES, "contexts of skeletons")
    for counts in arguments.skeletons.values():
        require_hashes(counts, "skeletons")
        require_counts(counts.values(), "counts of skeletons")
        require(0 not in counts.values(), "counts of skeletons")
    require_hashes(arguments.leaves, "leaves")
    require(len(arguments.leaves) <= _MOST_ENTRIES, "leaves")
    for leaf in arguments.leaves.values():
        _check_leaf(leaf)


def _check_leaf(leaf: LeafModel) -> None:
    count = len(leaf.specs)
    require(count <= MOST_TEMPLATES and len(leaf.identities) == count, "templates")
    require_hashes(leaf.identities, "templates")
    for spec in leaf.specs:
        _check_spec(spec)
    require_weights(leaf.numbers, range(3 * count), "numbers of templates")
    for hits, tries in zip(leaf.numbers[::3], leaf.numbers[1::3], strict=True):
        require(0.0 <= hits <= tries <= _LARGEST_TRIES, "uses of templates")
    require(len(leaf.after) == 2 * PLACES * count, "places of templates")
    require(all(map(int.__le__, leaf.after[::2], leaf.after[1::2])), "places of templates")
    require_weights(leaf.flag_weights, range(FLAGS), "weights of flags")
    require_counts([leaf.count], "uses of a leaf")
    require(len(leaf.constants) <= MOST_CONSTANTS, "constants")
    require_hashes(leaf.constants, "constants")
    require_counts(leaf.constants.values(), "counts of constants", 2 * leaf.count)
    require_hashes(leaf.top, "constants")
    require(len(leaf.top) <= MOST_CONSTANTS, "constants")
    require(0.0 <= leaf.constant_share <= 1.0, "share of constants")
    require(type(leaf.dependent) is bool, "templates")


def _check_spec(spec: tuple[int, ...]) -> None:
    kind, *parts = spec
    require(type(kind) is int and kind in HASH_PARTS, "kind of a template")
    if kind in HAS_PICK:
        require_counts([parts.pop()], "pick of a template", LARGEST_PICK)
    require(len(parts) == HASH_PARTS[kind], "parts of a template")
    require_hashes(parts, "parts of a template")
