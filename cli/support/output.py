"""Writes data to stdout and everything else to stderr, and turns errors into exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO, cast

import orjson

from cli.support.stdout import NAME, discard, named
from headstart.scrubbing.masking import masked, remember_environment

if TYPE_CHECKING:
    from replay.files.output import Target

FAILURE = 1
REFUSED = 77
"""TLS, login or a right at a service; EX_NOPERM of sysexits.h."""

_EXPECTED = (ConnectionError, TimeoutError, LookupError, ValueError, RuntimeError, OSError)
_FAULTS: Final = (KeyError, IndexError)
"""Raised by a subscript, never with a message for a user."""

_REASONS: Final = {errno.ENOENT: "no such file"}
"""Replaces misleading texts of file errors: ENOENT may also mean a missing folder."""
_LINES: Final = "\n\t"
_DEEPEST: Final = 200
"""Maximum nesting; orjson's is 254."""


def printable(raw: bytes | str, but: str = _LINES) -> str:
    """Return text without terminal control characters; bytes that are not UTF-8 become \\xNN."""
    text = raw if isinstance(raw, str) else raw.decode(errors="backslashreplace")
    return "".join(each if each.isprintable() or each in but else repr(each)[1:-1] for each in text)


def one_line(text: object) -> str:
    """Return text with line breaks escaped, since names may contain them."""
    return printable(str(text), "\t")


def echo(line: str) -> None:
    """Print one line of information on stderr."""
    print(one_line(line), file=sys.stderr, flush=True)


def echo_lines(text: str) -> None:
    """Print lines of information on stderr; all but the first are indented."""
    first, *more = text.split("\n")
    echo(first)
    for line in more:
        echo(f"    {line.removeprefix('    ')}")


def put(line: object) -> None:
    """Print one line of plain-text data on stdout."""
    print(one_line(line), flush=True)


_stdout_of_a_file: TextIO | None = None
"""The stream that an output file of the command was given as `-`."""


def claim_outputs(
    *targets: Target | None, inputs: Iterable[Target | None] = (), json: bool = False
) -> None:
    """Check a command's output files before it starts to work.

    If one is standard output, tables go to stderr from now on. Raises `CannotWrite`,
    `OutputIsInput`, and `typer.BadParameter` if two outputs are the same, or `json` uses stdout.
    """
    import typer

    from replay.files.output import check_output, is_stdout, same_output

    given = [each for each in targets if each is not None]
    on_stdout = [each for each in given if is_stdout(each)]
    if len(on_stdout) > 1:
        raise typer.BadParameter("only one output can go to standard output")
    if on_stdout and json:
        raise typer.BadParameter("stdout is used by the file; leave out --json")
    for number, each in enumerate(given):
        if any(same_output(each, other) for other in given[:number]):
            raise typer.BadParameter(f"{each} is given for two outputs")
        check_output(each, [each for each in inputs if each is not None])
    global _stdout_of_a_file  # noqa: PLW0603 - a later command of this process has its own stdout
    _stdout_of_a_file = sys.stdout if on_stdout else None


def show_json(value: Mapping[str, Any]) -> None:
    """Print the one JSON object of a command, on one line of stdout."""
    put_json(value)


def put_json(value: Any) -> None:
    """Print a value as one line of JSON on stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json_line(value))  # UTF-8 in any locale
    sys.stdout.buffer.flush()


def json_line(value: Any) -> bytes:
    """Return a value as one line of JSON in UTF-8, safe to print on a terminal.

    Control and format characters, such as U+009B and U+202E, are escaped: the data is the same.
    Integers of more than 64 bits become strings.
    """
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    try:
        line = orjson.dumps(value, option=options, default=str)
    except TypeError:  # values from outside may exceed what orjson writes
        line = orjson.dumps(_within_json(value), option=options)
    if line.isascii() and b"\x7f" not in line:
        return line
    text = line[:-1].decode()
    return "".join(map(_escaped, text)).encode() + b"\n"


def _within_json(value: Any, depth: int = 0) -> Any:
    """Return a value with strings in place of values that orjson cannot write."""
    if isinstance(value, Mapping) and depth < _DEEPEST:
        return {_within_json(str(k)): _within_json(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset | deque) and depth < _DEEPEST:
        return [_within_json(each, depth + 1) for each in value]
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return int(value)
    return str(value).encode(errors="backslashreplace").decode()


def _escaped(character: str) -> str:
    """Return a character of JSON, escaped unless printable."""
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under their column names, on stdout."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        # Text, so that rich does not read brackets in untrusted names as markup;
        # line breaks are escaped, so that a name cannot start a row.
        table.add_row(*(Text("" if cell is None else printable(str(cell), "")) for cell in row))
    stream = sys.stderr if sys.stdout is _stdout_of_a_file else sys.stdout
    # Without a terminal rich would cut the table to 80 columns.
    Console(file=stream, width=None if stream.isatty() else 200).print(table)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, which takes an s in the plural: `1 model`, `2 models`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float | None) -> str:
    """Return a share as a cell of a table, empty for None."""
    return "" if share is None else f"{share:.1%}"


def require_found(count: int, what: str, *, always: bool = False, **filters: object) -> None:
    """Exit with 1 and one line on stderr if a selection is empty.

    `filters`: the command's filters by option name, empty if not given. Without filters an empty
    list is no error, unless `always` is set. Call it after `show_json`.
    """
    import typer

    given = {f"--{name.replace('_', '-')}": each for name, each in filters.items() if each}
    if count or not (given or always):
        return
    options = " ".join(f"{name} {value}" for name, value in given.items())
    echo(f"error: no {what} matches {options}" if given else f"error: there is no {what}")
    raise typer.Exit(FAILURE)


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation; exit with 1 if it is not given."""
    import typer

    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
        echo("")
    if not agreed:
        echo("nothing is changed; --yes skips the question")
        raise typer.Exit(FAILURE)


def report_errors(command: Callable[[], Any]) -> None:
    """Run a command; if it fails, print one line and exit with 1.

    Characters that a stream's encoding lacks are escaped.
    """
    sys.stdout = named(sys.stdout)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    remember_environment()
    sys.stderr = cast(TextIO, _Masking(sys.stderr))
    try:
        try:
            command()
        except SystemExit:
            sys.stdout.flush()  # so that a write error is still reported below
            raise
        sys.stdout.flush()
    except KeyboardInterrupt:
        echo("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        echo("error: the reader of the output has ended (broken pipe)")
        discard()
        sys.exit(FAILURE)
    except Exception as error:
        expected = isinstance(error, _EXPECTED) and type(error) not in _FAULTS
        if not expected and not _is_of_a_service(error):
            echo_lines(traceback.format_exc().rstrip())
            echo("error: this is a fault of Headstart; please report it with the lines above")
            sys.exit(FAILURE)
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    if os.environ.get("HEADSTART_DEBUG"):
        echo_lines(traceback.format_exc().rstrip())
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes | os.PathLike):
        if error.filename == NAME:
            discard()
        why = _REASONS.get(error.errno or 0) or (error.strerror or type(error).__name__).lower()
        if not error.filename2:
            echo(f"error: {why}: {os.fsdecode(error.filename)}")
            sys.exit(FAILURE)
    text = " ".join(str(error).split()) if _is_of_a_service(error) else str(error)
    if denied := _denied(error):
        text = denied
    echo_lines(f"error: {text or type(error).__name__}")
    sys.exit(REFUSED if _is_refusal(error) else FAILURE)


def _is_refusal(error: Exception) -> bool:
    """Return whether TLS, the login or a right at a service is at fault, not an absent service."""
    from deploy.local.errors import ServiceRefuses
    from headstart.connections.secret import UnusableSecurity
    from headstart.kafka_producer import BrokerUnreachable
    from sinks.connections import DatabaseUnreachable

    if isinstance(error, ServiceRefuses):
        return True
    if isinstance(error, BrokerUnreachable):
        return error.trouble is not None
    if isinstance(error, DatabaseUnreachable):
        return error.trouble is not None and error.trouble.refused
    if _denied(error):
        return True
    return isinstance(error, UnusableSecurity) or isinstance(error.__cause__, UnusableSecurity)


def _denied(error: Exception) -> str:
    """Return what ACLs of the broker refuse, and the remedy; "" for other errors."""
    from headstart.connections.kafka_errors import denied_trouble

    trouble = denied_trouble(error)
    return f"the broker: {trouble.what}; {trouble.remedy}" if trouble else ""


def _is_of_a_service(error: Exception) -> bool:
    """Return whether a client library of Postgres, Redis or Kafka raised it."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(packages & {"psycopg", "redis", "aiokafka"})


class _Masking:
    """stderr with passwords masked, also in output of libraries and the interpreter."""

    def __init__(self, stream: TextIO) -> None:
        self.unmasked = stream

    def write(self, text: str) -> int:
        """Write the text with its secrets masked."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.unmasked.write(masked(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines with their secrets masked."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # bytes would pass unmasked
            raise AttributeError(name)
        return getattr(self.unmasked, name)
