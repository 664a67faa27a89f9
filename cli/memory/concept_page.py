"""The graph of concepts as one file of HTML that opens offline."""

from __future__ import annotations

from html import escape
from typing import Final

import numpy as np
import numpy.typing as npt

from memory.retrieval.concepts import ConceptGraph
from replay.results.page import document, figure

_WIDTH, _HEIGHT = 1000, 640
_MARGIN = 70
_ROUNDS: Final = 200
_MOST_DRAWN: Final = 80
_MOST_LINES: Final = 250

Positions = npt.NDArray[np.float64]


def concept_page(graph: ConceptGraph, title: str) -> str:
    """Return the page: the graph as a drawing, then its pairs as a table."""
    drawn = figure(
        title,
        _drawing(graph),
        "Circle: episodes with the concept. Line: episodes with both; the stronger, the more.",
    )
    return document(title, drawn + _table(graph))


def _drawing(graph: ConceptGraph) -> str:
    concepts = graph.concepts[:_MOST_DRAWN]
    place = {each.concept: number for number, each in enumerate(concepts)}
    pairs = [each for each in graph.pairs if each.a in place and each.b in place][:_MOST_LINES]
    weights = np.zeros((len(concepts), len(concepts)))
    for pair in pairs:
        weights[place[pair.a], place[pair.b]] = weights[place[pair.b], place[pair.a]] = (
            pair.episodes
        )
    at = _scaled(spread_out(weights))
    most = max((pair.episodes for pair in pairs), default=1)
    lines = [
        _line(at[place[pair.a]], at[place[pair.b]], pair.episodes / most,
              f"{pair.a} and {pair.b}: {pair.episodes:,} episodes, lift {pair.lift:.2f}")
        for pair in reversed(pairs)
    ]  # fmt: skip
    biggest = max((each.episodes for each in concepts), default=1)
    circles = [
        _circle(at[number], each.episodes / biggest, each.concept, f"{each.episodes:,} episodes")
        for number, each in enumerate(concepts)
    ]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="graph of concepts">'
        f"{''.join(lines)}{''.join(circles)}</svg>"
    )


def spread_out(weights: npt.NDArray[np.float64]) -> Positions:
    """Return positions, shape (n, 2), where what is connected is near; the same for equal weights.

    Forces of Fruchterman and Reingold (1991), begun at random places, always the same ones: from a
    circle, opposite ones cannot pass each other.
    """
    count = len(weights)
    at = np.random.default_rng(1).uniform(-1, 1, (count, 2))
    if count < 3:
        return at
    ideal = 1.6 / np.sqrt(count)
    pull = np.sqrt(weights / max(1e-9, weights.max()))
    for round_number in range(_ROUNDS):
        apart = at[:, None, :] - at[None, :, :]
        distance = np.maximum(np.linalg.norm(apart, axis=2), 1e-3)
        force = ideal**2 / distance - pull * distance**2 / ideal
        np.fill_diagonal(force, 0)
        move = (apart / distance[:, :, None] * force[:, :, None]).sum(axis=1) - 0.3 * at
        length = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        at = at + move / length * np.minimum(length, 0.1 * (1 - round_number / _ROUNDS))
    return at


def _scaled(at: Positions) -> Positions:
    """Return positions within the drawing."""
    if not len(at):
        return at
    low, span = at.min(axis=0), np.maximum(np.ptp(at, axis=0), 1e-9)
    room = np.array([_WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN])
    scaled: Positions = _MARGIN + (at - low) / span * room
    return scaled


def _line(begin: Positions, end: Positions, share: float, title: str) -> str:
    return (
        f'<line x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="var(--c1)" stroke-opacity="{0.1 + 0.6 * share:.2f}" '
        f'stroke-width="{0.6 + 5 * share:.1f}"><title>{escape(title)}</title></line>'
    )


def _circle(at: Positions, share: float, name: str, title: str) -> str:
    radius = 5 + 14 * float(np.sqrt(share))
    shown = name if len(name) <= 24 else name[:23] + "…"
    return (
        f"<g><title>{escape(f'{name}: {title}')}</title>"
        f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:.1f}" fill="var(--c0)" '
        f'fill-opacity=".8"/><text x="{at[0]:.1f}" y="{at[1] + radius + 13:.1f}" '
        f'text-anchor="middle" font-size="13" fill="currentColor">{escape(shown)}</text></g>'
    )


def _table(graph: ConceptGraph) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.a)} and {escape(each.b)}</td><td>{each.episodes:,}</td>"
        f"<td>{each.episodes / graph.episodes:.1%}</td><td>{each.lift:.2f}</td></tr>"
        for each in graph.pairs
    )
    return (
        f'<section><h2>Pairs</h2><p class="soft">Of {graph.episodes:,} episodes with a concept. '
        "Lift: how many times as often as if the two were independent.</p>"
        '<div class="scroll"><table><thead><tr><th>pair</th><th>episodes</th><th>share</th>'
        f"<th>lift</th></tr></thead><tbody>{rows}</tbody></table></div></section>"
    )
