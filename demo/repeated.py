"""Agent runs that are there twice, in one file or over several: the same one counts once."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from demo.traces import TraceRun


class Repeats:
    """Which runs were there before.

    A run is known by its `run_id`, else by source, domain, model, task and trial. It is the same
    one where it has the same start and calls too. `dropped`: repetitions; `differing`: runs of an
    identity that another one had, with another start or other calls; both are kept.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self._others: set[bytes] = set()
        self.dropped = self.differing = 0

    def first(self, run: TraceRun) -> bool:
        """Return whether a run counts, because it was not there before."""
        own = (run.source, run.domain, run.agent_model, run.task_id, run.trial)
        identity = _digest(own if run.run_id is None else (run.run_id,))
        content = _digest((identity, own, run.started_at, run.steps))
        known = self._known.setdefault(identity, content)
        if known is content:
            return True
        if known == content or content in self._others:
            self.dropped += 1
            return False
        self._others.add(content)
        self.differing += 1
        return True

    @property
    def sentences(self) -> Iterator[str]:
        """The counts of repeated runs, in sentences."""
        if self.dropped:
            yield f"{self.dropped} runs are there more than once, and count once"
        if self.differing:
            yield (
                f"{self.differing} runs have the identity of another run and another start or "
                "other calls, and count as runs of their own (docs/reference/files.md)"
            )


def _digest(value: object) -> bytes:
    return blake2b(repr(value).encode(errors="backslashreplace"), digest_size=16).digest()
