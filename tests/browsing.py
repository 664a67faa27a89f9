"""Opens a page in a headless browser; returns its console messages and requests."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

BROWSER: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is installed")
BY_PAGE: Final = '"traffic_annotation":101845102'
"""Chromium's annotation of what a page loads; what the browser asks of its maker has others."""


@dataclass(frozen=True)
class Seen:
    """A rendered page: its text after scripts ran, its console messages, its requests."""

    dom: str
    console: list[str]
    fetched: set[str]


def look(page: Path, scratch: Path, *, width: int = 1200) -> Seen:
    """Open a file in a window of so many pixels."""
    log = scratch / "net.json"
    opened = _open(
        page, scratch, "--dump-dom", "--enable-logging=stderr", f"--log-net-log={log}",
        f"--window-size={width},900",
    )  # fmt: skip
    console = [line.partition("] ")[2] for line in opened.stderr.splitlines() if "CONSOLE" in line]
    # One event a line; the last may be cut off where the browser ended.
    events = [line.rstrip(",") for line in log.read_text().splitlines() if BY_PAGE in line]
    asked = {json.loads(event)["params"]["url"] for event in events}
    return Seen(opened.stdout, console, {url for url in asked if not url.startswith("file:")})


def photograph(page: Path, picture: Path, scratch: Path, *, width: int, dark: bool) -> None:
    """Keep what a page looks like, as PNG."""
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    shot = f"--screenshot={picture}"
    _open(page, scratch, shot, scheme, "--hide-scrollbars", f"--window-size={width},2600")


def _open(page: Path, scratch: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", f"--user-data-dir={scratch / 'profile'}",
            "--virtual-time-budget=3000", *more, page.as_uri(),
        ],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
