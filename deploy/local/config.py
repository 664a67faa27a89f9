"""Configuration (`StackConfig`) and resulting addresses (`Addresses`) of a stack."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Addresses:
    """The addresses for clients."""

    kafka: str
    """`host:port[,host:port]`"""
    postgres: str
    """`postgresql://postgres@127.0.0.1:5433/headstart`, or the configured DSN"""
    redis: str
    """`redis://127.0.0.1:6380/0`, or the configured URL"""


@dataclass(frozen=True)
class StackConfig:
    """Which services to run, and their data directory."""

    data: Path
    kafka: str = "embedded"
    """`embedded` (in memory, lost when it stops), `apache`, or `host:port` of a broker"""
    postgres: str = "embedded"
    """`embedded`, or the DSN of a running server"""
    redis: str = "embedded"
    """`embedded`, or the URL of a running server"""
    kafka_port: int = 0
    """0: the port of the last run on this data directory, else a free one (also below)"""
    postgres_port: int = 0
    redis_port: int = 0
    secure: bool = False
    """TLS, logins and ACLs for all three; then Kafka is `apache` and the others `embedded`"""
