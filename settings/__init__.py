"""All settings, typed: from flags, environment, file, the running local stack, or defaults.

Read once at the edge (cli, demo) and passed down as plain values. An address not given by a flag,
the environment or the file is that of the local stack running on the data directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import EnvSettingsSource, NoDecode, SettingsConfigDict

from headstart.arguments.addresses import CREDENTIALS, holds_credentials
from headstart.arguments.checks import HIGHEST_PORT
from headstart.arguments.levels import split_levels, wrong_level
from headstart.connections.own_security import use_security
from headstart.connections.secret import UnusableSecurity
from headstart.keys import DEFAULT_LEVELS
from headstart.scrubbing.masking import remember_passwords, remember_secret
from learners.policy import spec
from learners.registry import DEFAULT, policy
from memory.embedding.choice import EmbeddingConfig, endpoint_problem
from memory.store.limits import RetentionLimits, WriteLimits
from processing.config import DEEPEST, LearningConfig, Objectives
from processing.records.dlq_limits import DlqLimits
from processing.worker_report import ALL_WORKERS, STUCK_AFTER_S
from settings.connections import brokers_of_config, login_of_stack, security_of
from settings.encryption_settings import EncryptionSettings
from settings.file import SettingsFile, SettingsFileError, read_file
from settings.kafka_settings import KafkaSettings
from settings.quarantine_settings import QuarantineSettings
from settings.retention_settings import RetentionSettings
from settings.secret_files import (
    MAY_HOLD_SECRETS,
    bare_kafka,
    comes_from_file,
    secret_files,
    variable_of,
)
from settings.variables import misspelt
from topics.catalogue import DAY_MS

T = TypeVar("T")
LIMITS = DlqLimits()
RUNNING: Final = "running stack"
"""Origin of an address that the running local stack has."""

_HIGHEST_HEALTH_PORT: Final = HIGHEST_PORT - len(ALL_WORKERS) + 1
"""The next ports are the other workers'."""


class SettingsError(ValueError):
    """A setting has an invalid value; the message names the setting."""


class Settings(EncryptionSettings, QuarantineSettings, RetentionSettings, KafkaSettings):
    """Every setting; its environment variable is HEADSTART_ and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="HEADSTART_", extra="ignore", frozen=True)

    data: Path = Field(Path(".headstart"), description="data directory")
    kafka: str = Field("127.0.0.1:9092", description="broker, host:port[,host:port]")
    postgres: str = Field(
        "postgresql://127.0.0.1:5432/headstart", description="Postgres DSN, also of several hosts"
    )
    redis: str = Field(
        "redis://127.0.0.1:6379/0", description="Redis URL, also of Sentinels or a cluster"
    )
    learner: str = Field(DEFAULT, description="threshold policy, such as hops or ema:alpha=.1")
    levels: Annotated[tuple[str, ...], NoDecode] = Field(
        DEFAULT_LEVELS,
        max_length=DEEPEST,
        description="context keys below the workflow type, coarse to fine; 4 at most, empty: none",
    )
    operators_key: SecretStr = Field(
        SecretStr(""), description="key that control records must be signed with; empty: unsigned"
    )
    idle_days: float = Field(
        30.0,
        gt=0,
        le=36_500,
        description="days without an outcome after which contexts are evicted",
    )
    most_contexts: int = Field(
        100_000,
        ge=100,
        description="contexts of one tenant in one partition; the oldest are evicted",
    )
    weights: Annotated[Objectives, NoDecode] = Field(
        Objectives(), description="objectives, such as success=0.5,latency=1,cost=2"
    )
    feedback_weight: int = Field(
        1, ge=0, le=100, description="number of outcomes that a user's feedback teaches as much as"
    )
    weigh_floods: bool = Field(
        True, description="weigh down users that flood; false: only report them"
    )
    notices_days: float = Field(
        30.0, ge=8, le=36_500, description="days for which Postgres keeps sent notices"
    )
    check_redis_s: float = Field(
        60.0,
        ge=0,
        description="seconds between comparisons of Redis with the table; 0: never",
    )
    partitions: int = Field(8, ge=1, le=10_000, description="partitions of new topics")
    instance: str = Field("0", pattern=r"^[\w.-]{1,64}$", description="name of a worker")
    stuck_after_s: float = Field(
        STUCK_AFTER_S,
        ge=0,
        description="seconds without progress after which a worker is ended; 0: never",
    )
    memory: bool = Field(
        True, description="keep episodes of workflow runs; false: store events only"
    )
    retrievals_days: float = Field(
        30.0, ge=1, le=36_500, description="days for which the memory keeps logged retrievals"
    )
    embedding_url: str = Field(
        "",
        description="OpenAI-compatible endpoint for embeddings, such as https://host/v1; empty: "
        "wordllama, in the worker",
    )
    embedding_model: str = Field("", description="model of that endpoint")
    embedding_key: SecretStr = Field(SecretStr(""), description="API key of that endpoint")
    embedding_dimensions: int = Field(
        256,
        ge=8,
        le=256,
        description="dimensions that the endpoint is asked for; longer vectors are projected",
    )
    pack_after_days: float = Field(
        7.0,
        ge=0,
        description="age of a run's last event, in days, from which on its events are packed, at "
        "least 1; 0: never",
    )
    spans_topic: str = Field(
        "",
        pattern=r"^[a-zA-Z0-9._-]{0,249}$",
        description="topic of an OpenTelemetry Collector, such as otlp_spans; empty: none",
    )
    health: str = Field("", description="health check address of a worker, host:port")

    refused_ratio: float = Field(
        LIMITS.ratio, ge=0, le=1, description="share of records that may be refused; 0: any"
    )
    refused_window: int = Field(
        LIMITS.window, ge=1, le=100_000, description="number of records for refused_ratio"
    )
    refused_run: int = Field(
        LIMITS.run, ge=0, description="records that may be refused in a row; 0: any"
    )

    @field_validator("levels", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """Parse a list from the environment, such as `domain,user_id`."""
        if isinstance(value, str):
            return split_levels(value)
        return value

    @field_validator("levels")
    @classmethod
    def _are_keys(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := wrong_level(value):
            raise ValueError(wrong)
        return value

    @field_validator("weights", mode="before")
    @classmethod
    def _weigh(cls, value: Any) -> Any:
        """Parse `success=0.5,cost=2`; others keep their defaults."""
        if not isinstance(value, str):
            return value
        given = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
        known = {field.name for field in fields(Objectives)}
        if not given.keys() <= known or value.count(",") + bool(value) != len(given):
            raise ValueError(f"give {', '.join(f'{name}=NUMBER' for name in sorted(known))}")
        found = Objectives(**{name.strip(): float(number) for name, number in given.items()})
        if not all(0.0 <= number <= 1e6 for number in asdict(found).values()):
            raise ValueError("weights are from 0 to 1,000,000")
        return found

    @field_validator("kafka")
    @classmethod
    def _ports(cls, value: str) -> str:
        if holds_credentials(value):
            raise ValueError(CREDENTIALS)
        ports = (each.strip().rpartition(":")[2] for each in value.split(","))
        if any(port.isdecimal() and not 1 <= int(port) <= HIGHEST_PORT for port in ports):
            raise ValueError(f"give host:port, the port from 1 to {HIGHEST_PORT}")
        return value

    @field_validator("pack_after_days")
    @classmethod
    def _no_fraction_of_a_day(cls, value: float) -> float:
        if 0 < value < 1:
            raise ValueError("at least 1, because the last day is never packed; 0 packs nothing")
        return value

    @field_validator("embedding_url")
    @classmethod
    def _an_endpoint(cls, value: str) -> str:
        if value and (why := endpoint_problem(value)):
            raise ValueError(why)
        return value

    @field_validator("health")
    @classmethod
    def _an_address(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if value and not (host and port.isdecimal() and 0 < int(port) <= _HIGHEST_HEALTH_PORT):
            raise ValueError(f"give host:port, the port from 1 to {_HIGHEST_HEALTH_PORT}")
        return value

    @field_validator("learner")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            return spec(policy(value))
        except LookupError as error:
            raise ValueError(error.args[0]) from None


@dataclass(frozen=True)
class LoadedSettings:
    """The settings, and the origin of each value."""

    settings: Settings
    origins: Mapping[str, str]


def read_settings(**flags: Any) -> Settings:
    """Return the settings; flags that are None are ignored. Raises `SettingsError`."""
    return read_with_origins(**flags).settings


def read_with_origins(**flags: Any) -> LoadedSettings:
    """Return the settings with their origins; see `read_settings`."""
    if wrong := next(misspelt(Settings.model_fields.keys()), None):
        raise SettingsError(wrong)
    given = {name: value for name, value in flags.items() if value is not None}
    environment = EnvSettingsSource(Settings)()
    environment |= _usable(secret_files, Settings.model_fields.keys())
    try:
        file = read_file(Settings.model_fields.keys())
    except SettingsFileError as error:
        raise SettingsError(str(error)) from error
    filed = {name: value for name, value in file.values.items() if name not in environment}
    bare = bare_kafka(environment.keys() | filed.keys() | given.keys())
    try:
        settings = Settings(**{**bare, **environment, **filed, **given})
    except ValidationError as error:
        raise _wrong(error, file, given.keys() | environment.keys()) from None
    found = {
        name: value
        for name, value in _running_stack(settings.data).items()
        if name not in settings.model_fields_set
    }
    origins = _origins(found, filed, file, environment, bare, given)
    if not (settings.model_fields_set | found.keys()) & {"kafka"}:
        found |= (brokers := _usable(brokers_of_config, settings))
        origins |= dict.fromkeys(brokers, f"file {settings.kafka_config}")
    login = login_of_stack(settings) if origins["kafka"] == RUNNING else {}
    found, origins = found | login, origins | dict.fromkeys(login, RUNNING)
    settings = settings.model_copy(update=found)
    remember_passwords(settings.postgres, settings.redis, settings.embedding_url)
    for _name, value in settings:  # also those of the settings file
        if isinstance(value, SecretStr):
            remember_secret(value.get_secret_value())
    if origins["encryption_key"].startswith("file "):  # else it is read again at every use
        _use_keys(settings.encryption_key)
    use_security(_usable(security_of, settings))
    return LoadedSettings(settings, origins)


def _use_keys(value: SecretStr) -> None:
    from sinks.postgres.encryption.master_keys import parse_master_keys, use_master_keys

    use_master_keys(parse_master_keys(value.get_secret_value()))


def _origins(
    found: Mapping[str, Any],
    filed: Mapping[str, Any],
    file: SettingsFile,
    environment: Mapping[str, Any],
    bare: Mapping[str, Any],
    given: Mapping[str, Any],
) -> dict[str, str]:
    """Return where each setting's value is from; later arguments override earlier ones."""
    origins = dict.fromkeys(Settings.model_fields, "default")
    origins |= {name: f"environment {name.upper()}" for name in bare}
    origins |= dict.fromkeys(found, RUNNING)
    origins |= {name: f"file {file.place(name)}" for name in filed}
    origins |= {name: f"environment {variable_of(name)}" for name in environment}
    return origins | dict.fromkeys(given, "flag")


def _usable(read: Callable[..., T], *given: Any) -> T:
    """Return what `read` returns. Raises `SettingsError` for what it cannot use."""
    try:
        return read(*given)
    except UnusableSecurity as error:
        raise SettingsError(str(error)) from error


def _wrong(error: ValidationError, file: SettingsFile, elsewhere: Set[str]) -> SettingsError:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    setting = str(first["loc"][0])
    place = f" in {file.place(setting)}" if setting in file.values.keys() - elsewhere else ""
    got = "" if setting in MAY_HOLD_SECRETS else f" (got {first['input']!r})"
    return SettingsError(f"setting {name}{place}: {reason}{got}")


def _running_stack(data: Path) -> dict[str, str]:
    from deploy.local import running  # lazily: most commands start faster without it

    stack = running(data)
    if stack is None or stack.addresses is None:
        return {}
    at = stack.addresses
    return {"kafka": at.kafka, "postgres": at.postgres, "redis": at.redis}


def rules_of(settings: Settings) -> LearningConfig:
    """Return the configuration that rows depend on, besides the log."""
    return LearningConfig(
        policy(settings.learner),
        settings.levels,
        operators_key(settings),
        int(settings.idle_days * DAY_MS),
        settings.most_contexts,
        settings.weights,
        settings.feedback_weight,
    )


def embedding_of(settings: Settings) -> EmbeddingConfig:
    """Return which model embeds queries."""
    return EmbeddingConfig(
        settings.embedding_url,
        settings.embedding_model,
        settings.embedding_key.get_secret_value(),
        settings.embedding_dimensions,
    )


def retention_of(settings: Settings) -> RetentionLimits:
    """Return what Postgres keeps of events and cases."""
    return RetentionLimits(
        settings.retention_days, settings.keep_events, settings.keep_cases, settings.keep_unnamed
    )


def writes_of(settings: Settings) -> WriteLimits:
    """Return how many episodes of a writer count for others."""
    return WriteLimits(
        settings.user_cases, settings.session_cases, settings.cases_window_s, settings.low_reward,
        settings.unnamed_cases,
    )  # fmt: skip


def operators_key(settings: Settings) -> bytes | None:
    """Return the key for signing control records, or None."""
    return settings.operators_key.get_secret_value().encode() or None


def environment(settings: Settings, *, addresses: bool = True) -> dict[str, str]:
    """Return the settings as the environment of a child process."""
    left_out = () if addresses else ("kafka", "postgres", "redis")
    return {
        f"HEADSTART_{name.upper()}": _text(getattr(settings, name))
        for name in Settings.model_fields
        if name not in left_out and not comes_from_file(name, _text(getattr(settings, name)))
    }


def _text(value: Any) -> str:
    """Return a value as the environment gives it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Objectives):
        return ",".join(f"{name}={number}" for name, number in asdict(value).items())
    return ",".join(value) if isinstance(value, tuple) else str(value)
