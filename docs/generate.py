"""Writes the generated documentation: pages of docs/reference/ and tables of architecture.md.

`python -m docs.generate`, or `make docs`; tests/docs fails when it has to be run. In a page that is
written by hand, a section between `<!-- NAME -->` and `<!-- end of NAME -->` is replaced.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

from agents.health.metrics import METRICS
from cli.main import whole
from docs.module_tables import import_rules, modules
from headstart.emitting import metrics
from headstart.thresholds import metrics as reader_metrics
from settings import Settings
from settings.secret_files import FROM_FILES
from settings.variables import EXECUTOR
from topics.catalogue import DAY_MS, TOPICS, Topic
from topics.schema.json_schema import schemas

FOLDER: Final = Path(__file__).parent / "reference"
ARCHITECTURE: Final = Path(__file__).parent / "explanation" / "architecture.md"
_SCHEMAS: Final = "../../topics/schema/json"
_MADE: Final = "<!-- Made by `make docs` from the code. Change it there. -->\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of Markdown."""
    cells = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(str(c).replace('|', chr(92) + '|') for c in row)} |\n"
                   for row in cells)  # fmt: skip


def commands() -> str:
    """Return the page of the command line."""
    found = list(_commands(whole(), ()))
    index = [(f"[`headstart {name}`](#headstart-{name.replace(' ', '-')})", _summary(command))
             for name, command in found]  # fmt: skip
    body = "\n".join(_command(name, command) for name, command in found)
    return (
        "# Commands\n\nAfter this page you know each command and its options. Data goes to "
        "stdout, everything else to stderr; `--json` puts one object on the last line of stdout "
        "([exit codes](exit-codes.md)). `headstart emit` and `headstart ship` come with the client "
        "alone.\n\n"
        f"{table(('command', 'what it does'), index)}\n{body}"
    )


def _commands(command: Any, name: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(name), command
        return
    for child, below in children.items():
        yield from _commands(below, (*name, child))


def _summary(command: Any) -> str:
    return str(command.help).partition("\n")[0]


def _command(name: str, command: Any) -> str:
    text = inspect.cleandoc(command.help)
    description, _, example = re.sub(r"\bExamples?: ", "\0", text).partition("\0")
    lines = re.split(r";\s+|, then\s+(?=headstart)", " ".join(example.split()))
    # Text beside an example's command becomes a comment.
    examples = "".join(re.sub(r", (where .*)$", r"  # \1", line.strip()) + "\n" for line in lines)
    rows = [_parameter(each) for each in command.params if each.name != "help"]
    options = f"\n{table(('argument or option', 'default', 'meaning'), rows)}" if rows else ""
    return f"## headstart {name}\n\n{description.strip()}\n\n```\n{examples}```\n{options}"


def _parameter(each: Any) -> tuple[str, str, str]:
    name, default = ", ".join([*each.opts, *each.secondary_opts]), each.default
    kind = each.type_descriptor.annotation
    if not name.startswith("-"):
        name = each.metavar or name.upper()
        name += f": {_value(kind)}" if issubclass(kind, Enum) else ""
    elif not each.is_flag:
        name += f" {each.metavar or _value(kind)}"
    if isinstance(default, Enum):
        default = default.value
    shown = "" if default in (None, (), [], False) else f"`{default}`"
    return f"`{name}`", shown, each.help or ""


def _value(kind: type) -> str:
    if issubclass(kind, Enum):
        return "|".join(str(each.value) for each in kind)
    return {str: "TEXT", int: "INTEGER", float: "NUMBER"}.get(kind, kind.__name__.upper())


def _addresses_first() -> Iterator[str]:
    """Yield the names of the service's settings, those of connections before the others."""
    names = list(Settings.model_fields)
    logins = [name for name in names if name.startswith("kafka_")]
    yield from dict.fromkeys(["kafka", *logins, "postgres", "redis", "data", *names])


def settings() -> str:
    """Return the page of settings."""
    service = [
        (f"`HEADSTART_{name.upper()}`", f"`{name}`",
         _default(Settings.model_fields[name].get_default()),
         Settings.model_fields[name].description)
        for name in _addresses_first()
    ]  # fmt: skip
    files = ", ".join(f"`HEADSTART_{name.upper()}`" for name in FROM_FILES)
    executors = [(f"`{name}`", f"`{default}`" if default else "empty", meaning)
                 for name, (default, meaning) in EXECUTOR.items()]  # fmt: skip
    return (
        "# Settings\n\nAfter this page you know each setting, its default and its meaning. "
        "[How to set them](../how-to/configure.md); `headstart config show` prints each with its "
        "origin.\n\n## Service\n\n"
        f"{table(('environment', 'settings file', 'default', 'meaning'), service)}\n"
        "`HEADSTART_CONFIG` names the settings file, by default `headstart.toml`. Each of these "
        "variables also has one with `_FILE` appended, which names a [file with its "
        f"value](../how-to/secure-connections.md#secrets-in-files): {files}.\n\n"
        "## Executors and command line\n\n"
        "Read from the environment alone. Executors also read the settings of Kafka's TLS and "
        "login above, `HEADSTART_LEVELS`, and, [where they are given no "
        "address](../how-to/secure-connections.md#executors), `HEADSTART_KAFKA` and "
        "`HEADSTART_REDIS`. `HEADSTART_HASH_KEY` may be in a file, too "
        "(`HEADSTART_HASH_KEY_FILE`).\n\n"
        f"{table(('environment', 'default', 'meaning'), executors)}"
    )


def _default(value: Any) -> str:
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = ",".join(value)
    elif hasattr(value, "__dataclass_fields__"):
        value = ",".join(f"{name}={number:g}" for name, number in vars(value).items())
    return f"`{value}`" if value != "" else "empty"


def topics() -> str:
    """Return the page of topics."""
    rows = [
        (f"`{each.name}`", each.holds, each.key, _kept(each),
         "as `headstart.events`" if each.partitioned else "1",
         f"[{each.schema}]({_SCHEMAS}/{each.schema}.schema.json)" if each.schema else "",
         "internal" if each.internal else "public")
        for each in TOPICS
    ]  # fmt: skip
    columns = ("topic", "holds", "key", "kept", "partitions", "schema", "contract")
    return (
        "# Topics\n\nAfter this page you know each topic, its key and how long it keeps records. "
        "Topics are never created automatically: `headstart topics create` creates them; "
        "`headstart topics list` and `headstart topics describe` show them as they are. What the "
        "records mean: [events](event-contract.md), [control records](control-records.md), "
        "[overrides and modes](redis.md#overrides-and-modes), [notices](notices.md).\n\n"
        + table(columns, rows)
    )


def _kept(topic: Topic) -> str:
    if topic.cleanup == "delete":
        return f"{topic.retention_ms // DAY_MS} days"
    after = topic.compaction_lag_ms // 60_000
    return f"compacted after {after} minutes" if after else "compacted"


def metrics_page() -> str:
    """Return the page of metrics."""
    columns = ("metric", "kind", "by", "meaning")
    workers = [(f"`{each.name}`", each.kind, each.label, each.help) for each in METRICS]
    return (
        "# Metrics\n\nAfter this page you know each metric for Prometheus. Counting is done once a "
        "batch, in plain integers; the text is made for a scrape.\n\n"
        "## Workers\n\nAt `/metrics` of "
        "`HEADSTART_HEALTH`, beside `/healthz` and `/readyz`, with `process_*` of the worker's "
        f"process.\n\n{table(columns, workers)}\n## Executors\n\nIn the default registry of "
        "prometheus-client, where the process has that.\n\n"
        f"{table(('metric', 'kind', 'meaning'), list(_executors()))}"
    )


def _executors() -> Iterator[tuple[str, str, str]]:
    for collector in (metrics._collector, reader_metrics._collector):
        for family in collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield f"`{name}`", family.type, family.documentation


def events() -> str:
    """Return the page of the event's fields."""
    schema = schemas()["event.schema.json"]
    parts = []
    for name, record in schema["$defs"].items():
        required = record.get("required", [])
        rows = [(f"`{field}`", _type(kind), "yes" if field in required else "")
                for field, kind in record["properties"].items()]  # fmt: skip
        description = inspect.cleandoc(record.get("description", ""))
        parts.append(f"## {name}\n\n{description}\n\n{table(('field', 'type', 'required'), rows)}")
    return (
        "# Fields of an event\n\nAfter this page you know each field of an event: the record types "
        "of `client/headstart/events/schema.py`. "
        f"[The JSON Schema]({_SCHEMAS}/event.schema.json) has the same for machines, "
        "[golden examples](../../topics/schema/golden) show each kind, and "
        "[rules of an event](event-contract.md) has what a schema cannot express.\n\n"
        + "\n".join(parts)
    )


def _type(kind: Mapping[str, Any]) -> str:
    if "anyOf" in kind:
        return " or ".join(dict.fromkeys(map(_type, kind["anyOf"])))
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in kind:
        return ", ".join(f"`{each}`" for each in kind["enum"])
    name = str(kind.get("type", "anything"))
    if name == "array" and kind.get("items"):
        return f"array of {_type(kind['items'])}"
    low, high = kind.get("minimum"), kind.get("maximum")
    if name in ("number", "integer") and low is not None:
        return f"{name}, {low:g} or more" if high is None else f"{name}, {low:,} to {high:,}"
    if name == "string" and "maxLength" in kind:
        return f"string, {kind.get('minLength', 0)} to {kind['maxLength']:,} characters"
    return name


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands,
    "settings.md": settings,
    "topics.md": topics,
    "metrics.md": metrics_page,
    "events.md": events,
}


def page(name: str) -> str:
    """Return the text of a page of the reference."""
    return f"{_MADE}{PAGES[name]().rstrip()}\n"


def architecture(text: str) -> str:
    """Return the architecture page with its generated sections replaced."""
    for name, make in (("import-rules", import_rules), ("modules", modules)):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{make()}\n{end}{tail}"
    return text


def main() -> None:
    """Write every page."""
    for name in PAGES:
        (FOLDER / name).write_text(page(name), encoding="utf-8")
    text = ARCHITECTURE.read_text(encoding="utf-8")
    ARCHITECTURE.write_text(architecture(text), encoding="utf-8")


if __name__ == "__main__":
    main()
