"""What a decision record may contain: the limits that its maker keeps, and readers check."""

from __future__ import annotations

from typing import Final

from headstart.prediction.argument_values.argument_templates import (
    AFTER_LEAF,
    AFTER_WORD,
    ARGUMENT,
    NAMED,
    NEIGHBOUR,
    OTHER_LEAF,
    RESULT,
    SAME_NAME,
    TOKEN,
)
from headstart.prediction.argument_values.leaf_model import FLAGS, MOST_TEMPLATES
from headstart.prediction.fixed_math import ONE
from headstart.prediction.history.json_leaves import MOST_LEAVES
from headstart.prediction.next_tool.name_words import SHARES

LARGEST_RECORD: Final = 32_768  # bytes
CONTEXTS: Final = 11
ROOT: Final = 7
"""The first context of every record."""
MOST_WORDS: Final = 64
MOST_NAMED: Final = 400
LONGEST_NAME: Final = 200  # characters
LARGEST_SHARE: Final = SHARES
MOST_CALLS: Final = 16
CALL_CONTEXTS: Final = 2
MOST_LEAF_RECORDS: Final = 2 * MOST_LEAVES
MOST_OFFERED: Final = MOST_TEMPLATES + 8
LARGEST_FLAGS: Final = (1 << FLAGS) - 1
MOST_FOUND: Final = 14
MOST_CANDIDATES: Final = 16
LARGEST_PROBABILITY: Final = ONE
LARGEST_TRIES: Final = 3
MOST_MEMORY: Final = 2

HASH_PARTS: Final = {
    RESULT: 2, ARGUMENT: 2, SAME_NAME: 1, TOKEN: 2, AFTER_WORD: 2, AFTER_LEAF: 1, OTHER_LEAF: 1,
    NEIGHBOUR: 4,
}  # fmt: skip
"""Of a template, by kind: how many hashes follow the kind."""
HAS_PICK: Final = frozenset((RESULT, TOKEN))
"""Kinds whose hashes are followed by a pick."""
LARGEST_PICK: Final = NAMED
