"""How large the state of a predictor is."""

from __future__ import annotations

import io
import pickle
from threading import Lock, RLock
from types import FunctionType
from typing import Any, Final

from headstart.prediction.interface import Predictor

_NO_STATE: Final = (type(Lock()), type(RLock()), FunctionType)


def state_size(predictor: Predictor) -> int:
    """Return the size of a predictor's state: of its own `to_bytes()`, else of its pickle."""
    to_bytes = getattr(predictor, "to_bytes", None)
    return len(to_bytes() if callable(to_bytes) else pickled_state(predictor))


def pickled_state(predictor: Predictor) -> bytes:
    """Return the pickle of a predictor without locks and functions. Raises what pickling raises."""
    target = io.BytesIO()
    _StatePickler(target, pickle.HIGHEST_PROTOCOL).dump(predictor)
    return target.getvalue()


class _StatePickler(pickle.Pickler):
    """Leaves out what is no state: locks, and functions."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, _NO_STATE):
            return type(None), ()
        return NotImplemented
