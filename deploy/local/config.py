"""What a caller asks for (`StackConfig`) and gets (`Addresses`). Plain data, no behaviour."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Addresses:
    """Where clients connect."""

    kafka: str
    """`host:port[,host:port]`"""
    postgres: str
    """`postgresql://postgres@127.0.0.1:5433/headstart`, or the DSN that was given"""
    redis: str
    """`redis://127.0.0.1:6380/0`, or the URL that was given"""


@dataclass(frozen=True)
class StackConfig:
    """Which parts run here, and where they keep their data."""

    data: Path
    kafka: str = "embedded"
    """`embedded` (in memory: forgets when it stops), `apache`, or `host:port` of a broker"""
    postgres: str = "embedded"
    """`embedded`, or the DSN of a server that runs already"""
    redis: str = "embedded"
    """`embedded`, or the URL of a server that runs already"""
    kafka_port: int = 0
    """0: the port of the last run on this data directory, else a free one (likewise below)"""
    postgres_port: int = 0
    redis_port: int = 0
