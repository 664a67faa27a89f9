"""Formats a snapshot as lines of text for any width and height. Pure: the terminal adds colours."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

from console.inspection.health import HealthSummary, assess
from console.inspection.sparkline import sparkline
from console.inspection.trends import Trends
from topics.catalogue import worker_of

WIDE: Final = 60
"""Minimum columns for full names."""


class ScreenLine(NamedTuple):
    """One line; `style` selects its colour."""

    text: str
    style: str = ""


def screen(
    trends: Trends, width: int, height: int, *, ascii_only: bool = False
) -> list[ScreenLine]:
    """Return at most `height` lines of at most `width` columns, the most important first."""
    snapshot = trends.snapshot
    if snapshot is None:
        return [ScreenLine(_cut("loading ...", width))]
    summary = assess(snapshot, still_s=trends.still_s)
    lines = [*_verdict_lines(summary, width), *_numbers(trends, width)]
    lines += _groups(trends, width)
    lines += _workers(trends, width)
    lines += _thresholds(trends, width, ascii_only)
    plain = (ScreenLine(fit(line.text, width, ascii_only), line.style) for line in lines)
    return list(plain)[: max(1, height)]


def plain_line(trends: Trends) -> str:
    """Return a snapshot as one line, for a file or a pipe."""
    snapshot = trends.snapshot
    if snapshot is None:
        return "loading"
    summary = assess(snapshot, still_s=trends.still_s)
    parts = [str(summary), *(f"{name} {value}" for name, value, _ in _facts(trends))]
    return "  ".join(parts)


def _verdict_lines(summary: HealthSummary, width: int) -> Iterator[ScreenLine]:
    style = "good" if summary.healthy else "bad"
    if len(str(summary)) <= width:
        yield ScreenLine(str(summary), style)
        return
    yield ScreenLine("HEALTHY" if summary.healthy else "UNHEALTHY", style)
    for each in summary.reasons or (summary.note,):
        yield ScreenLine(f" {each}", "" if summary.healthy else "bad")


def _facts(trends: Trends) -> Iterator[tuple[str, str, str]]:
    """Yield (name, value, style) of each figure."""
    snapshot = trends.snapshot
    if snapshot is None:
        return
    if log := snapshot.log:
        yield "log", f"{log.records:,} records{_per_s(trends.rate('records'))}", ""
    if snapshot.stored:
        yield "stored", f"{snapshot.stored.events:,} events{_per_s(trends.rate('events'))}", ""
    if log:
        yield "lag", f"{snapshot.lag:,}", "warn" if snapshot.lag else ""
    if memory := snapshot.memory:
        waiting = f"{memory.rows:,} runs wait, the oldest for {age_of(memory.oldest_s)}"
        yield "memory", waiting if memory.rows else "is up to date", "warn" if memory.rows else ""
    if learned := snapshot.learned:
        yield "contexts", f"{learned.contexts:,} with {learned.outcomes:,} outcomes", ""
        rate = learned.hit_rate
        shown = "none begun" if rate is None else f"{rate:.1%} of {learned.hits + learned.misses:,}"
        yield "hit rate", shown, ""
        saved, wasted = learned.saved_ms / 1000, learned.wasted_ms / 1000
        net = f"{learned.net_ms / 1000:+,.1f} s = {saved:,.1f} saved - {wasted:,.1f} wasted"
        yield "net time", net, "good" if learned.net_ms > 0 else ""
        if learned.unreadable:
            first = learned.unreadable[0]
            where = f"{first.path or first.workflow_type} of {first.tenant}"
            yield "unreadable", f"{len(learned.unreadable):,} values in Redis: {where}", "warn"
    if log:
        handled = f" ({log.handled:,} handled)" if log.handled else ""
        yield "dead letters", f"{log.dead_letters:,}{handled}", "warn" if log.dead_letters else ""


def _per_s(rate: float | None) -> str:
    return "" if rate is None else f" +{rate:,.0f}/s"


def _numbers(trends: Trends, width: int) -> Iterator[ScreenLine]:
    yield ScreenLine("")
    for name, value, style in _facts(trends):
        yield ScreenLine(f"{name:13}{value}" if width >= WIDE else f"{name} {value}", style)


def _groups(trends: Trends, width: int) -> Iterator[ScreenLine]:
    snapshot = trends.snapshot
    if snapshot is None or not snapshot.groups:
        return
    yield ScreenLine("")
    yield ScreenLine("lag by partition" if width >= WIDE else "lag", "head")
    for group in snapshot.groups:
        name = worker_of(group.group)
        each = " ".join(str(lag) for lag in group.lag.values())
        text = f"  {name:12}{group.total:>8,}  | {each}" if width >= WIDE else f" {name} {each}"
        yield ScreenLine(text, "warn" if group.total else "")


def _workers(trends: Trends, width: int) -> Iterator[ScreenLine]:
    snapshot = trends.snapshot
    if snapshot is None or not snapshot.workers:
        return
    yield ScreenLine("")
    yield ScreenLine("workers", "head")
    for worker in snapshot.workers:
        name = worker.name if worker.instance == "0" else f"{worker.name}-{worker.instance}"
        trouble = worker.trouble
        progressed = trends.progressed.get((worker.name, worker.instance))
        if width < WIDE:
            yield ScreenLine(f" {name} {trouble or 'ready'}", "bad" if trouble else "")
            continue
        age = "" if worker.age_s is None else f"up {age_of(worker.age_s)}, "
        last = "nothing moved yet, "
        if progressed is not None:
            last = f"moved {age_of(snapshot.at - progressed)} ago, "
        detail = f"{age}{last}process {worker.pid}"
        yield ScreenLine(f"  {name:12}{trouble or 'ready':9} {detail}", "bad" if trouble else "")


def _thresholds(trends: Trends, width: int, ascii_only: bool) -> Iterator[ScreenLine]:
    snapshot = trends.snapshot
    if snapshot is None or snapshot.learned is None or not snapshot.learned.leading:
        return
    yield ScreenLine("")
    yield ScreenLine("thresholds", "head")
    graph = max(5, min(30, width // 4))
    for context in snapshot.learned.leading:
        values = tuple(trends.moved.get((context.tenant, context.path), ()))
        line = sparkline(values, graph, ascii_only=ascii_only)
        name = context.path.removeprefix("workflow_type=")
        room = width - graph - 18
        if width < WIDE:
            yield ScreenLine(f" {context.speculate:.2f} {line[-5:]} {name}")
        else:
            yield ScreenLine(
                f"  {context.speculate:.3f} {line:<{graph}} {fit(name, room, ascii_only):<{room}}"
                f" {context.outcomes:,}"
            )


def age_of(seconds: float) -> str:
    """Return a duration in its largest fitting unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def fit(text: str, width: int, ascii_only: bool = False) -> str:
    """Return text without control characters, cut to `width` columns; optionally in ASCII."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    if ascii_only:
        clean = clean.encode("ascii", "replace").decode()
    return _cut(clean, width)


def _cut(text: str, width: int) -> str:
    """Cut text to terminal columns; a character may take two or none."""
    if text.isascii():
        return text[: max(0, width)]
    used, kept = 0, []
    for character in text:
        used += columns_of(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept)


def columns_of(character: str) -> int:
    """Return how many columns of a terminal a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
