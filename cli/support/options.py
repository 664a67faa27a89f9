"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.option_groups import Only, OptionGroup

if TYPE_CHECKING:
    from settings import LoadedSettings, Settings

KafkaPart = Annotated[
    str,
    typer.Option(
        help="embedded, apache (also started here), configured (HEADSTART_KAFKA), or an address."
    ),
]
Part = Annotated[
    str, typer.Option(help="embedded, configured (as in the settings), or an address.")
]
Kafka = Annotated[str | None, typer.Option(help="Broker, host:port[,host:port].")]
KafkaConfig = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Kafka client.properties with TLS and login (librdkafka or Java keys)."
    ),
]
Postgres = Annotated[str | None, typer.Option(help="Postgres DSN.")]
Redis = Annotated[str | None, typer.Option(help="Redis URL.")]
Data = Annotated[Path | None, typer.Option(help="Data directory [default: .headstart].")]
Health = Annotated[
    str | None, typer.Option(help="Health check address of the first worker, host:port.")
]
Learner = Annotated[
    str | None, typer.Option(help="Threshold policy, such as td or ema:alpha=.1 [default: hops].")
]
Partitions = Annotated[int | None, typer.Option(help="Partitions of new topics [default: 8].")]
Tenant = Annotated[str, typer.Option(help="The tenant.")]
Limit = Annotated[int, typer.Option(min=1, help="At most this many.")]
Since = Annotated[str | None, typer.Option(metavar="AGE", help="Maximum age: 90s, 30m, 2h, 7d.")]
TenantOnly = Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")]
WorkflowTypeOnly = Annotated[str | None, typer.Option(help="Only this workflow type.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")
]


@dataclass(frozen=True)
class SettingOptions(OptionGroup):
    """Options that override settings; a command selects those that it needs."""

    kafka: Kafka = None
    kafka_config: KafkaConfig = None
    postgres: Postgres = None
    redis: Redis = None
    data: Data = None
    learner: Learner = None
    partitions: Partitions = None
    health: Health = None

    def read(self, **more: Any) -> Settings:
        """Return the settings; `more`: other options of the command. Raises `SettingsError`."""
        return self.load(**more).settings

    def load(self, **more: Any) -> LoadedSettings:
        """Return the settings with their origins. Raises `SettingsError`."""
        from settings import read_with_origins

        return read_with_origins(**vars(self) | more)


_KAFKA = ("kafka", "kafka_config")
KafkaOptions = Annotated[SettingOptions, Only(*_KAFKA, "data")]
PostgresOptions = Annotated[SettingOptions, Only("postgres", "data")]
RedisOptions = Annotated[SettingOptions, Only("redis", "data")]
KafkaRedisOptions = Annotated[SettingOptions, Only(*_KAFKA, "redis", "data")]
KafkaPostgresOptions = Annotated[SettingOptions, Only(*_KAFKA, "postgres", "data")]
ServiceOptions = Annotated[SettingOptions, Only(*_KAFKA, "postgres", "redis", "data")]
HealthOptions = Annotated[SettingOptions, Only(*_KAFKA, "postgres", "redis", "data", "health")]
LearnerOptions = Annotated[SettingOptions, Only(*_KAFKA, "postgres", "redis", "learner", "data")]
StackOptions = Annotated[SettingOptions, Only("data", "partitions", "learner")]
