"""Checks arguments: each function names the one that cannot be used, and what to give instead."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from headstart.connections.redis_urls import is_cluster_url, is_sentinel_url

_HOST: Final = r"([^\s:/@\[\]]+|\[[0-9A-Fa-f:.%a-z]+\])"
_BROKER: Final = re.compile(rf"\s*{_HOST}(?::([0-9]{{1,5}}))?\s*")


HIGHEST_PORT: Final = 65_535
LARGEST: Final = sys.float_info.max
"""The largest finite float."""


class InvalidArgument(TypeError, ValueError):
    """An argument is unknown, or its value cannot be used; the message names it and the fix.

    A `TypeError`, as for every wrong keyword, and a `ValueError`, as for every wrong value.
    """


def refuse_unknown(callee: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `InvalidArgument` naming an argument that `callee` lacks, and the nearest it has."""
    for name in given:
        if name in known:
            continue
        near = nearest(name, known, cutoff=0.6) or nearest(name.casefold(), known, cutoff=0.6)
        wanted = f"did you mean {near!r}?" if near else f"it has {', '.join(sorted(known))}"
        raise InvalidArgument(f"{callee}() has no argument {name!r}; {wanted}")


SettingsT = TypeVar("SettingsT", bound=type)


def named_settings(settings: SettingsT) -> SettingsT:
    """Make a dataclass refuse unknown keywords as every other callable of the client does."""
    known = settings.__dataclass_fields__  # type: ignore[attr-defined]
    made = settings.__init__  # type: ignore[misc]

    @wraps(made)
    def checked(self: object, *values: object, **named: object) -> None:
        refuse_unknown(settings.__name__, named, known)
        made(self, *values, **named)

    settings.__init__ = checked  # type: ignore[misc]
    return settings


OTHER_NAMES: Final = {
    "agent": "agent_id",
    "id": "workflow_id",
    "session": "session_id",
    "task": "task_id",
    "tool": "tool_id",
    "tool_name": "tool_id",
    "type": "workflow_type",
    "uid": "user_id",
    "user": "user_id",
    "workflow": "workflow_type",
}
"""Other names of the fields of a workflow."""


def nearest(name: str, known: Collection[str], cutoff: float = 0.75) -> str | None:
    """Return the known name that `name` most likely stands for; None if none is similar."""
    if (other := OTHER_NAMES.get(name)) in known:
        return other
    import difflib  # only for errors

    longer = sorted(each for each in known if each.startswith(f"{name}_"))  # without its unit
    found = longer or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return found[0] if found else None


def brokers(kafka: object) -> str:
    """Return Kafka broker addresses; the port is optional (9092). Raises `InvalidArgument`."""
    wanted = "give host:port[,host:port], such as 127.0.0.1:9092"
    if not isinstance(kafka, str):
        raise InvalidArgument(f"kafka: {kafka!r:.100} is no address; {wanted}")
    for each in kafka.split(","):
        found = _BROKER.fullmatch(each)
        if found is None or not 0 < int(found[2] or 9092) <= HIGHEST_PORT:
            raise InvalidArgument(f"kafka: {each!r:.100} is no address; {wanted}")
    return kafka


def broker_ports(kafka: str) -> set[int]:
    """Return the ports in addresses of Kafka brokers; what is no address has none."""
    found = map(_BROKER.fullmatch, kafka.split(","))
    return {int(each[2] or 9092) for each in found if each is not None}


def redis_url(url: object) -> str:
    """Return a Redis URL. Raises `InvalidArgument`, without repeating the URL."""
    if not isinstance(url, str) or not _is_redis_url(url):
        shown = "what was given" if isinstance(url, str) else f"{url!r:.100}"
        raise InvalidArgument(
            f"redis_url: {shown} is no Redis URL; give redis://host:port/database, such as "
            "redis://127.0.0.1:6379/0"
        )
    return url


def _is_redis_url(url: str) -> bool:
    if is_sentinel_url(url) or is_cluster_url(url):
        return _can_connect(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    if re.search(r"\s", url):
        return False
    if parts.scheme == "unix":
        return bool(parts.path)
    numbered = re.fullmatch(r"/?[0-9]*", parts.path) is not None
    known = url.startswith(("redis://", "rediss://"))  # redis-py knows only lower case
    return known and port != 0 and numbered and _can_connect(url)


def _can_connect(url: str) -> bool:
    """Return whether redis-py accepts the URL's options, without connecting."""
    import redis

    from headstart.connections.redis_clients import connect
    from headstart.connections.redis_nodes import Nodes

    try:
        client = Nodes(url).at(("localhost", 1)) if is_cluster_url(url) else connect(url)
        client.connection_pool.make_connection()
    except (ValueError, TypeError, redis.RedisError):
        return False
    return True


def number(
    name: str,
    value: object,
    least: float,
    most: float = LARGEST,
    *,
    above: bool = False,
    whole: bool = False,
    unit: str = "",
) -> float:
    """Return a number from `least` (or `above` it) to `most`; infinity only if `most` is.

    `whole`: an integer. `unit`: for the message. Raises `InvalidArgument` naming the argument, also
    for NaN and booleans.
    """
    found: Any = value if isinstance(value, Real) and not isinstance(value, bool) else None
    fits = found is not None and (found > least if above else found >= least) and found <= most
    if fits and (not whole or isinstance(found, Integral) or float(found).is_integer()):
        result: float = found if isinstance(found, int | float) else float(found)
        return result
    kind = "a whole number" if whole else "a finite number" if most == LARGEST else "a number"
    bound = f"above {least:g}" if above else f"of at least {least:g}"
    bound += f" and at most {most:g}" if most < LARGEST else ""
    raise InvalidArgument(
        f"{name} must be {kind}{unit and ' of ' + unit + ','} {bound}, not {value!r:.100}"
    )


def flag(name: str, value: object) -> bool:
    """Return a boolean. Raises `InvalidArgument`: a string such as "no" would count as true."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be True or False, not {value!r:.100}")
    return value


def identifier(name: str, value: object, *, none: bool = False) -> str | None:
    """Return a non-empty string, or None if `none` allows it. Raises `InvalidArgument`."""
    if (none and value is None) or (isinstance(value, str) and value):
        return value
    fix = "; leave it out where there is none" if value is None else ""
    raise InvalidArgument(f"{name} must be a non-empty string, not {value!r:.100}{fix}")


def function(name: str, value: object) -> Any:
    """Return a callable. Raises `InvalidArgument` naming the argument."""
    if not callable(value):
        raise InvalidArgument(f"{name} must be a function, not {value!r:.100}")
    return value


def choice(name: str, value: Any, allowed: Collection[Any]) -> Any:
    """Return one of the allowed values. Raises `InvalidArgument` naming the argument and them."""
    if value not in allowed:
        *some, last = map(str, allowed)
        raise InvalidArgument(f"{name} must be {', '.join(some)} or {last}, not {value!r:.100}")
    return value


def mapping(name: str, value: object) -> Mapping[str, object]:
    """Return a mapping. Raises `InvalidArgument` naming the argument."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(
            f"{name} must be a mapping, such as {{'workflow_type': 'refund'}}, not {value!r:.100}"
        )
    return value
