"""The values of cells of CSV: numbers, truths, JSON.

What cannot be read as the wanted type stays a text, and is refused as one where it is checked.
"""

from __future__ import annotations

import math
from typing import Any, Final

import orjson

from headstart.events.exact_json import is_large, load_exactly

_DIGITS: Final = 20
"""A number of this many digits may not fit into 64 bits."""
_TRUE: Final = frozenset(("true", "1", "1.0", "yes", "t"))
_FALSE: Final = frozenset(("false", "0", "0.0", "no", "f"))
NOTHING: Final = frozenset(("nan", "none", "null", "n/a", "na", "<na>"))
"""What programs write for a missing value."""


def json_of(cell: str) -> Any:
    """Return the JSON value of a cell; a text where it is none."""
    if cell.lower() in ("true", "false"):  # spreadsheets write them in capitals
        cell = cell.lower()
    try:
        return load_exactly(cell)
    except orjson.JSONDecodeError:
        return cell


def level_of(cell: str) -> Any:
    """Return a value of a context. A number that is written otherwise stays a text: `1.10`."""
    found = json_of(cell)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return found
    return cell if is_large(found) or str(found) != cell else found


def number_of(cell: str) -> Any:
    """Return a number; None for NaN.

    What JSON cannot hold, and what only Python reads as a number (`4_00`, digits of other scripts),
    stays a text, and is refused as one.
    """
    if "_" in cell or not cell.strip().isascii():
        return cell
    try:
        if len(cell) < _DIGITS and cell.strip().isdecimal():
            return int(cell)
        found = float(cell)
    except ValueError:
        return cell
    return cell if math.isinf(found) else found


def truth_of(cell: str) -> Any:
    """Return true or false, in the spellings of spreadsheets and programs."""
    word = cell.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else cell


def maybe_truth_of(cell: str) -> Any:
    """Return true or false; None for a missing value."""
    return None if cell.strip().lower() in NOTHING else truth_of(cell)


def reason_of(cell: str) -> Any:
    """Return a text; true and false remain booleans, so that they are refused as a reason."""
    found = maybe_truth_of(cell)
    return cell.strip() if isinstance(found, str) else found


def flag_of(cell: str) -> Any:
    """Return true or false; any other cell as JSON, which is refused later if it is not null."""
    found = truth_of(cell)
    return found if isinstance(found, bool) else json_of(cell)
