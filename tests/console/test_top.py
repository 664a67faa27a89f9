"""`headstart top` as people meet it: on terminals large and small, without one, and ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.inspection.target import InspectionTarget
from tests.console.terminal import Terminal

Open = Callable[..., Terminal]
CTRL_C = b"\x03"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Run `headstart top` on a terminal of this test's own."""
    started: list[Terminal] = []

    def run(*arguments: str, **more: Any) -> Terminal:
        started.append(Terminal(tmp_path, "top", "--every", "0.2", *arguments, **more))
        return started[-1]

    yield run
    for each in started:
        each.close()


@pytest.fixture
def where(target: InspectionTarget) -> tuple[str, ...]:
    return ("--kafka", target.kafka, "--postgres", target.postgres, "--redis", target.redis)


@pytest.mark.parametrize(
    ("end", "code"),
    [(CTRL_C, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["Ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_top_restores_the_terminal(opened: Open, where: Any, end: Any, code: int) -> None:
    top = opened(*where)
    top.until("dead letters")
    assert not top.restored  # or this sees nothing
    if isinstance(end, bytes):
        top.press(end)
        end = None
    assert top.ended(end) == code
    assert top.restored
    assert "Traceback" not in top.text


def test_ctrl_c_before_the_first_snapshot(opened: Open, where: Any) -> None:
    top = opened(*where)
    top.until("loading")
    top.press(CTRL_C)
    assert top.ended() == 0
    assert top.restored
    assert "Traceback" not in top.text


def test_the_first_line_shows_the_problem(opened: Open, where: Any, closed: str) -> None:
    top = opened(*where, "--redis", f"redis://:hush@{closed}/0")
    top.until("Redis: nothing listens there")
    top.until("no worker thresholds")
    shown = top.text[top.text.index("UNHEALTHY") :]
    assert "no worker thresholds" in shown
    assert "hush" not in top.text


def test_a_terminal_of_twenty_columns(opened: Open, where: Any) -> None:
    top = opened(*where, columns=20, rows=50)
    top.until("dead letters")
    top.press(CTRL_C)
    assert top.ended() == 0
    frame = top.frames[-1].replace("\r", "").replace("^C", "").split("\n")
    assert frame[0].rstrip() == "UNHEALTHY"
    assert max(map(len, frame)) <= 20


def test_a_terminal_that_shrinks(opened: Open, where: Any) -> None:
    top = opened(*where, columns=120, rows=40)
    place = top.until("dead letters")
    top.resize(20, 5)
    top.until("UNHEALTHY", place)
    top.resize(1, 1)
    top.press(CTRL_C)
    assert top.ended() == 0
    assert top.restored


@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_drawing(opened: Open, where: Any, plain: dict[str, str]) -> None:
    top = opened(*where, **plain)
    top.until("dead letters 0")
    assert b"\x1b" not in top.raw
    top.press(CTRL_C)
    assert top.ended() == 0


def test_a_pipe_gets_a_line_per_snapshot(run: Any, where: Any) -> None:
    ended = run("top", "--looks", "2", "--every", "0.1", *where)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("UNHEALTHY  no worker episodes") for line in lines)
    assert "dead letters 0" in lines[1]


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LANG": "C"}])
def test_a_locale_with_only_ascii(
    opened: Open, where: Any, locale: dict[str, str], served: None
) -> None:
    top = opened(*where, columns=100, rows=50, **locale)
    top.until("ref?nd")
    top.press(CTRL_C)
    assert top.ended() == 0
    assert top.raw.isascii(), top.raw


def test_a_utf8_locale(opened: Open, where: Any, served: None) -> None:
    top = opened(*where, columns=100, rows=50)
    top.until("refünd")
    top.press(CTRL_C)
    assert top.ended() == 0


@pytest.mark.parametrize("wrong", [("--every", "0"), ("--looks", "0"), ("--every", "often")])
def test_wrong_usage(run: Any, wrong: tuple[str, str]) -> None:
    ended = run("top", *wrong)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_a_settings_file_that_is_broken(run: Any, tmp_path: Path) -> None:
    (tmp_path / "headstart.toml").write_text("\nkafak = 'b:1'\n")
    ended = run("top", "--looks", "1")
    assert ended.returncode == 1
    assert "headstart.toml, line 2: there is no setting 'kafak'" in ended.stderr
    assert "did you mean 'kafka'" in ended.stderr
