"""Errors that name what each of several servers answered; redis-py keeps one of them, or text."""

from __future__ import annotations

from collections.abc import Mapping

from redis.exceptions import ConnectionError as RedisConnectionError


class NoServerAnswers(RedisConnectionError):
    """None of the nodes of a cluster, or of the Sentinels, gave what it was asked for.

    `errors`: of each that was asked, by `host:port`.
    """

    def __init__(self, errors: Mapping[str, Exception]) -> None:
        self.errors = dict(errors)
        super().__init__("; ".join(f"{at}: {error}" for at, error in self.errors.items()))


class PrimaryNotFound(NoServerAnswers):
    """No Sentinel names a primary that it can reach.

    `answered`: some Sentinel did answer; it knows no such name, or takes the primary for down.
    """

    def __init__(self, name: str, errors: Mapping[str, Exception], *, answered: bool) -> None:
        super().__init__(errors)
        self.answered = answered
        found = [f"no Sentinel names a primary {name!r}", *filter(None, [str(self)])]
        self.args = ("; ".join(found),)
