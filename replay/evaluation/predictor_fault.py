"""`PredictorFault`: what a user's predictor raised or returned, with the place in their code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Final

from headstart.prediction.callable_predictor import InvalidGuess

_LONGEST: Final = 300
"""Characters of an exception that are shown."""


class PredictorFault(RuntimeError):
    """A user's predictor raised an error, or returned what is no guess.

    `problem`: what follows the predictor's name in the message. `run`: its place, from 0; None:
    outside of a run. `decision`: decision point of that run, from 1.
    """

    def __init__(
        self, problem: str, name: str = "", run: int | None = None, decision: int = 0
    ) -> None:
        super().__init__(problem, name, run, decision)
        self.problem, self.name, self.run, self.decision = problem, name, run, decision

    def __str__(self) -> str:
        where = "" if self.run is None else f" (run {self.run + 1}, decision point {self.decision})"
        return f"{self.name}{self.problem}{where}"


@contextmanager
def faults_of(name: str) -> Iterator[None]:
    """Raise `PredictorFault` for what the code of a user's predictor raises in the body.

    `name`: MODULE:NAME. SystemExit is a fault too.
    """
    try:
        yield
    except InvalidGuess as error:
        raise PredictorFault(f": {error}", name) from error
    except (Exception, SystemExit) as error:
        shown = repr(error)
        if len(shown) > _LONGEST:
            shown = f"{shown[:_LONGEST]}..."
        raise PredictorFault(f" raised {shown}{_place(error, name)}", name) from error


def _place(error: BaseException, name: str) -> str:
    """Return ` at FILE:LINE`, the last line of the user's package; "" if none of it was running."""
    package = name.partition(":")[0].partition(".")[0]
    places = [
        (frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package
    ]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        places.append((error.filename, error.lineno))
    if not places:
        return ""
    file, line = places[-1]
    inside = os.path.relpath(file)
    return f" at {file if inside.startswith(os.pardir) else inside}:{line}"
