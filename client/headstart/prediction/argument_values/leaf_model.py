"""What is known of one leaf of a tool's arguments: its templates, and its constants as hashes.

Numbers of all templates are in one array, because a model has a thousand templates.
"""

from __future__ import annotations

from array import array
from typing import Final

from headstart.prediction.argument_values.argument_templates import FIRST_DEPENDENT, Spec
from headstart.prediction.stable_hash import combined

MOST_TEMPLATES: Final = 12
MOST_CONSTANTS: Final = 16
FLAGS: Final = 4
PLACES: Final = 8
"""A template also has counts by what the call followed: the hash of that, modulo this."""
_MOST_OFFERED: Final = 8
_MOST_TRIES: Final = 60.0
_WORTH_KEEPING: Final = 0.4
_HOPELESS_TRIES, _HOPELESS = 24.0, 0.03
_COUNTED_TWICE: Final = 4  # constants are counted in halves
_SHARE_RATE: Final = 0.05
_OFTEN: Final = 0.02


class LeafModel:
    """One leaf: `top` has the constants, by hash, that are worth offering."""

    __slots__ = (
        "after", "constant_share", "constants", "count", "dependent", "flag_weights",
        "identities", "numbers", "specs", "top",
    )  # fmt: skip

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self.identities: list[int] = []
        self.numbers = array("f")  # hits, tries and weight of each template
        self.after = bytearray()  # PLACES times hits and tries of each template
        self.constants: dict[int, int] = {}
        self.count = 0
        self.constant_share = 0.5  # how often lately the value had been seen here before
        self.flag_weights = array("f", [0.0] * FLAGS)
        self.top: tuple[int, ...] = ()
        self.dependent = False  # a template depends on other leaves

    def count_use(self, index: int, place: int, right: bool) -> None:
        """Count one use of a template."""
        numbers, after, i = self.numbers, self.after, 3 * index
        hits, tries = numbers[i] + right, numbers[i + 1] + 1.0
        if tries > _MOST_TRIES:
            hits *= 0.5
            tries *= 0.5
        numbers[i], numbers[i + 1] = hits, tries
        i = 2 * (PLACES * index + place)
        if after[i + 1] == 255:
            after[i] >>= 1
            after[i + 1] >>= 1
        after[i] += right
        after[i + 1] += 1

    def forget_hopeless(self) -> None:
        """Drop the templates that were hardly ever right."""
        numbers = self.numbers
        for index in range(len(self.specs) - 1, -1, -1):
            tries = numbers[3 * index + 1]
            if tries > _HOPELESS_TRIES and numbers[3 * index] < _HOPELESS * tries:
                self._remove(index)

    def add(self, spec: Spec, place: int) -> None:
        """Add a template, in the place of the one that is right least often if there are many."""
        identity = identity_of(spec)
        if identity in self.identities:
            return
        if len(self.specs) >= MOST_TEMPLATES:
            ratios = [hits / (tries + 1.0) for hits, tries in
                      zip(self.numbers[::3], self.numbers[1::3], strict=True)]  # fmt: skip
            worst = ratios.index(min(ratios))
            if ratios[worst] > _WORTH_KEEPING:
                return
            self._remove(worst)
        self.specs.append(spec)
        self.identities.append(identity)
        self.numbers.extend((1.0, 1.0, 0.0))
        counts = bytearray(2 * PLACES)
        counts[2 * place] = counts[2 * place + 1] = 1
        self.after += counts
        self.dependent = self.dependent or spec[0] >= FIRST_DEPENDENT

    def _remove(self, index: int) -> None:
        del self.specs[index], self.identities[index]
        del self.numbers[3 * index : 3 * index + 3]
        del self.after[2 * PLACES * index : 2 * PLACES * (index + 1)]
        self.dependent = any(spec[0] >= FIRST_DEPENDENT for spec in self.specs)

    def count_constant(self, constant: int) -> None:
        """Count a value by its hash; 0 is a value that is not a constant."""
        self.count += 1
        constants = self.constants
        seen = constants.get(constant, 0)
        known = seen >= _COUNTED_TWICE
        self.constant_share += _SHARE_RATE * (known - self.constant_share)
        if constant:
            if not seen and len(constants) >= MOST_CONSTANTS:
                constants = {key: n - 1 for key, n in constants.items() if n > 2}
                self.constants = constants
            if seen or len(constants) < MOST_CONSTANTS:
                constants[constant] = seen + 2
        if self.count < 20 or self.count % 8 == 0:
            least = max(2.0, 2 * _OFTEN * self.count)
            often = [key for key, n in constants.items() if n > least]
            often.sort(key=lambda key: -constants[key])
            self.top = tuple(often[:_MOST_OFFERED])


def identity_of(spec: Spec) -> int:
    """Return the hash of a template."""
    identity = len(spec)
    for part in spec:
        identity = combined(identity, part)
    return identity
