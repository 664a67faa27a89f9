"""The predictors that can be evaluated, by name: ours, the simple ones, and a user's function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from headstart.prediction.callable_predictor import CallablePredictor
from headstart.prediction.interface import Predictor
from headstart.prediction.predictor import CallPredictor
from headstart.prediction.simple.back_off import BackOffPredictor
from headstart.prediction.simple.literal import LiteralPredictor
from headstart.prediction.simple.names_only import NamesOnlyPredictor
from headstart.prediction.simple.pattern import PatternPredictor
from replay.evaluation.executor_groups import maker_of_group
from replay.evaluation.own_predictor import OwnPredictor
from replay.evaluation.predictor_fault import faults_of

BASELINES: Final[Mapping[str, Callable[[], Predictor]]] = {
    "back_off": BackOffPredictor,
    "pattern": PatternPredictor,
    "names_only": NamesOnlyPredictor,
    "literal": LiteralPredictor,
}
"""The simple predictors that others are compared with."""


OURS: Final = "headstart"
"""The name of Headstart's own predictor."""


def maker_of(name: str) -> Callable[[], Predictor]:
    """Return what makes a new predictor: `OURS`, a name of `BASELINES` or of a group of executors,
    or MODULE:NAME.

    MODULE:NAME, found in the working directory too, is a function of the history
    (`CallablePredictor`), or a class with the method `run` of the interface. Raises `LookupError`
    for an unknown name, and `PredictorFault` for what the module, or making the predictor, raises.
    """
    if name == OURS:
        return CallPredictor
    if name in BASELINES:
        return BASELINES[name]
    if (group := maker_of_group(name)) is not None:
        return group
    module, colon, attribute = name.partition(":")
    if not colon:
        known = ", ".join((OURS, *BASELINES))
        raise LookupError(f"there is no predictor {name!r}; choose {known}, or MODULE:FUNCTION")
    return _own(module, attribute)


def _own(module: str, attribute: str) -> Callable[[], Predictor]:
    if "" not in sys.path:
        sys.path.insert(0, "")
    name = f"{module}:{attribute}"
    found = _attribute(_imported(module, name), attribute)
    if isinstance(found, type):
        if not callable(getattr(found, "run", None)):
            raise LookupError(f"{name} has no method run(); see Predictor")
    elif not callable(found):
        raise LookupError(f"{name} is no function of a history")

    def make() -> Predictor:
        with faults_of(name):
            own = found() if isinstance(found, type) else CallablePredictor(found)
        return OwnPredictor(own, name)

    return make


def _imported(module: str, name: str) -> ModuleType:
    with faults_of(name):
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in (module, module.partition(".")[0]):
                raise
    raise LookupError(f"there is no module {module!r} on the path or in the working directory")


def _attribute(module: ModuleType, attribute: str) -> Any:
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise LookupError(f"module {module.__name__!r} has no {attribute!r}") from None
