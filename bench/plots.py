"""`python -m bench.plots`: draws the SVG plots of docs/explanation/learning.md, no library needed.

Each plot is a pure function of fixed seeds, so that drawing again changes no byte on the same
machine. `bench.learn` prints the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil, floor, log10
from pathlib import Path
from typing import Final

from bench.support.measuring import echo
from bench.support.worlds import LENGTH, WORLDS, WorldEvent, abrupt_drift, sigma
from headstart.calibration import logit
from learners.registry import policy
from replay.engine.reference import ReferenceReplay

FOLDER: Final = Path(__file__).parents[1] / "docs" / "plots"
SEED: Final = 3
WIDTH, HEIGHT, LEFT, BOTTOM = 720, 320, 56, 40
COLOURS: Final = ("#1f6f8b", "#d1495b", "#8d8741", "#6a4c93", "#555555")

Series = Sequence[tuple[float, float]]


def plot(
    title: str, across: str, up: str, lines: Mapping[str, Series], low: float, high: float
) -> str:
    """Return an SVG of lines by name, the vertical axis from `low` to `high`."""
    most = max(x for line in lines.values() for x, _ in line)
    unit = 10 ** floor(log10(most))
    right = ceil(most / unit) * unit
    wide, tall = WIDTH - LEFT - 150, HEIGHT - BOTTOM - 30

    def at(x: float, y: float) -> str:
        y = min(max(y, low), high)
        return f"{LEFT + x / right * wide:.1f},{30 + (high - y) / (high - low) * tall:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{title}</text>',
        f'<text x="{LEFT + wide / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{across}</text>',
        f'<text x="14" y="{30 + tall / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {30 + tall / 2:.0f})">{up}</text>',
    ]
    for tick in range(5):
        y, x = low + (high - low) * tick / 4, right * tick / 4
        x0, y0 = at(0, y).split(",")
        parts.append(
            f'<path d="M{x0} {y0}h{wide}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{float(y0) + 4:.1f}" text-anchor="end">{y:.4g}</text>'
            f'<text x="{at(x, low).split(",")[0]}" y="{HEIGHT - BOTTOM + 16}" '
            f'text-anchor="middle">{x:,.6g}</text>'
        )
    for place, (name, line) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        points = " ".join(at(x, y) for x, y in line)
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{points}"/>'
            f'<text x="{WIDTH - 142}" y="{46 + 18 * place}" fill="{colour}">{name}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def what_a_threshold_does() -> str:
    """Draw what each fixed threshold earns per prediction, by how sure predictors really are."""
    lines = {}
    for name, (a, b) in {"honest": (1.0, 0.0), "too sure": (0.65, -0.4)}.items():
        qs = [(p / 200, sigma(a * logit(p / 200) + b)) for p in range(1, 200)]
        worths = [(p, 400 * q - 600 * (1 - q)) for p, q in qs]
        falling = list(accumulate(worth for _, worth in reversed(worths)))
        lines[name] = [(p, s / 199) for (p, _), s in zip(reversed(worths), falling, strict=True)]
    return plot(
        "A hit saves 400 ms, a miss wastes 600 ms", "threshold", "ms a prediction", lines, -150, 90
    )


def thresholds_under_drift(names: Sequence[str]) -> str:
    """Draw learners' thresholds for one user through an abrupt drift, and the best there is."""
    events = abrupt_drift(SEED)
    path = events[0].judged.paths
    lines: dict[str, Series] = {}
    for name in names:
        replay, line = ReferenceReplay(policy(name)), []
        for n, event in enumerate(events):
            replay.learn(*event.judged)
            if n % 20 == 0:
                line.append((float(n), replay.answer(path, event.judged.outcome).threshold))
        lines[name] = line
    lines["best"] = best_thresholds(events, path)
    return plot(
        "From prediction 2,000 on, confidences are too high", "predictions", "threshold",
        lines, 0.4, 1.0,
    )  # fmt: skip


def best_thresholds(events: Sequence[WorldEvent], path: Sequence[str]) -> Series:
    """Return the least confidence of a user that pays, before the drift and after it."""
    line = []
    for begin, end in ((0, LENGTH // 2), (LENGTH // 2, LENGTH)):
        own = [each for each in events[begin:end] if each.judged.paths == path and each.worth > 0]
        least = min(each.judged.outcome.confidence for each in own)
        line += [(float(begin), least), (float(end - 1), least)]
    return line


def earnings(world: str, names: Sequence[str], title: str) -> str:
    """Draw what policies earn in a world as it goes on, in seconds, beside the oracle."""
    events = WORLDS[world].generate(SEED)
    lines: dict[str, Series] = {}
    oracle = list(accumulate(max(0.0, event.worth) for event in events))
    for name in names:
        replay, total, line = ReferenceReplay(policy(name)), 0.0, []
        for n, event in enumerate(events):
            paths, outcome = event.judged
            if outcome.confidence >= replay.threshold(paths, outcome):
                total += event.worth
            replay.learn(paths, outcome)
            if n % 20 == 0:
                line.append((float(n), total / 1000))
        lines[name] = line
    lines["oracle"] = [(float(n), oracle[n] / 1000) for n in range(0, len(events), 20)]
    return plot(title, "predictions", "seconds saved", lines, 0.0, oracle[-1] / 1000)


def main() -> None:
    """Write every plot."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    drawn = {
        "threshold": what_a_threshold_does(),
        "drift": thresholds_under_drift(("hops", "td", "ema", "sliding")),
        "drift-others": thresholds_under_drift(("histogram", "hedge", "aci", "gradient")),
        "earned-drift": earnings(
            "abrupt drift", ("hops", "sliding", "td", "ema"),
            f"Half of {LENGTH:,} predictions in, the world changes",
        ),
        "earned-sparse": earnings(
            "sparse", ("hops", "histogram", "td", "ema"), "A thousand users, few of them often"
        ),
    }  # fmt: skip
    for name, svg in drawn.items():
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
        echo(f"docs/plots/{name}.svg")


if __name__ == "__main__":
    main()
