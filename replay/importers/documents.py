"""The JSON documents of a file: one a line, one over several lines, or several in a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import orjson

from headstart.events.exact_json import load_exactly
from replay.files.input import Input, name_of, open_input
from replay.files.json_lines import header_of, plain, rows
from replay.files.repeated_keys import marked, marked_object
from topics.spans.storable import may_hold_surrogates, repaired_texts

_raw_decode = json.JSONDecoder().raw_decode
_marking_decode = json.JSONDecoder(object_pairs_hook=marked_object).raw_decode
_BETWEEN: Final = " \t\r\n,\x1e"
"""What may stand between documents; the last is the separator of JSON text sequences (RFC 7464)."""


def documents(file: Path, *, mark: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the documents of a file with their places; None for a line that is not JSON.

    `mark`: return an object that gives a key twice as `RepeatedKeys`.

    A file whose first line is JSON, or CSV, is read line by line, any other whole. Raises `OSError`
    and `CannotRead`.
    """
    name = name_of(file)
    with open_input(file) as opened:
        lines = enumerate(opened, start=1)
        for number, line in lines:
            if not (text := line.strip(b" \t\r\n\x1e")):
                continue
            if header := header_of(line):
                rest = (each for _, each in lines)
                for at, row in rows(header, rest, number, name):
                    yield f"{name}, line {at}", plain(row)
            elif _json(text) is None and not _glued(text):
                rest = (each for _, each in lines)
                yield from _whole(name, b"".join((line, *_bounded(opened, rest))), number, mark)
            else:
                yield from _by_line(name, chain([(number, line)], lines), mark)
            return


def _decode(text: str, at: int, *, repair: bool, mark: bool) -> tuple[Any, int]:
    """Return the document at a place of a text, and its end; it keeps what orjson refuses."""
    document, end = (_marking_decode if mark else _raw_decode)(text, at)
    return (repaired_texts(document) if repair else document), end


def _bounded(opened: Input, lines: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for line in lines:
        size += len(line)
        opened.check(size)
        yield line


def _by_line(
    name: str, lines: Iterator[tuple[int, bytes]], mark: bool
) -> Iterator[tuple[str, Any]]:
    for number, line in lines:
        text = line.strip(b" \t\r\n\x1e")
        if not text:
            continue
        place = f"{name}, line {number}"
        if text in (b"{", b"["):  # a document over several lines, after one that has its own
            yield place, _json(text + b"".join(_up_to_its_end(text, lines)), mark)
        elif (document := _json(text, mark)) is None and (several := _glued(text, mark)):
            yield from ((place, each) for each in several)
        else:
            yield place, document


def _up_to_its_end(first: bytes, lines: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    end = b"}" if first == b"{" else b"]"
    for _, line in lines:
        yield line
        if line.rstrip() == end:
            return


def _whole(name: str, content: bytes, first: int, mark: bool) -> Iterator[tuple[str, Any]]:
    """Yield the documents of a text whose first line is none; `first`: that line's number."""
    if (document := _json(content, mark)) is not None:
        yield name, document
        return
    text, at, number = content.decode("utf-8", "backslashreplace"), 0, first
    repair = may_hold_surrogates(text)
    while at < len(text):
        if text[at] in _BETWEEN:
            number += text[at] == "\n"
            at += 1
            continue
        try:
            document, end = _decode(text, at, repair=repair, mark=mark)
        except (ValueError, RecursionError):
            document, end = None, text.find("\n", at)
            end = len(text) if end < 0 else end
        yield f"{name}, line {number}", document
        number += text.count("\n", at, end)
        at = end


def _glued(line: bytes, mark: bool = False) -> list[Any]:
    """Return the documents of a line that has several; [] where it is anything else."""
    text, at, found = line.decode("utf-8", "backslashreplace"), 0, []
    repair = may_hold_surrogates(text)
    while at < len(text):
        try:
            document, at = _decode(text, at, repair=repair, mark=mark)
        except (ValueError, RecursionError):
            return []
        if not isinstance(document, dict | list):
            return []
        found.append(document)
        while at < len(text) and text[at] in _BETWEEN:
            at += 1
    return found


def _json(text: bytes, mark: bool = False) -> Any:
    try:
        document = load_exactly(text)
    except orjson.JSONDecodeError:
        return None
    return marked(text, document) if mark else document
