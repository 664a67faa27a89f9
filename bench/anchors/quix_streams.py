"""The anchor of `process` in Python: Quix Streams doing the same work on the same records.

It is installed in a separate environment in the user's cache on first use: its dependencies are
not ours. There `python quix_streams.py BROKER STATE_DIRECTORY EVENTS` runs this file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any, Final

VERSION: Final = "3.28.1"
_PATIENCE_S: Final = 900.0


def quix_streams(kafka: str, folder: Path, events: int) -> float:
    """Return the events/s of draining the first `events` of the topic.

    Raises `CalledProcessError` where its packages cannot be had or it fails.
    """
    argv = [str(_interpreter()), __file__, kafka, str(folder / "quix-state"), str(events)]
    root = Path(__file__).parent.parent
    # The learners are plain Python: the same rule as on the other sides.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "client")])}
    done = subprocess.run(
        argv, env=environment, check=True, timeout=_PATIENCE_S, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout.split()[-1])


def _interpreter() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    home = (Path(base) if base else Path.home() / ".cache") / "headstart" / f"quix-{VERSION}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        wanted = [f"quixstreams=={VERSION}", "msgspec", "orjson"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (home / "ready").touch()
    return python


def main() -> None:
    """Drain, and print the rate."""
    import orjson
    from quixstreams import Application  # type: ignore[import-not-found]

    from learners.ema import Ema
    from learners.outcome import Outcome

    kafka, state, events = sys.argv[1], sys.argv[2], int(sys.argv[3])
    app = Application(
        kafka,
        consumer_group="bench-quix",
        auto_offset_reset="earliest",
        state_dir=state,
        loglevel="ERROR",
    )
    topic = app.topic("headstart.events", value_deserializer="bytes", key_deserializer="bytes")
    policy = Ema()
    begun: list[float] = []

    def learn(value: bytes, state: Any) -> None:
        if not begun:
            begun.append(time.monotonic())
        event = orjson.loads(value)
        held = tuple(state.get("ema") or policy.initial())
        outcome = Outcome(
            confidence=event["confidence"],
            correct=event["data"]["prediction"]["was_correct"],
            timestamp=event["timestamp"],
        )
        state.set("ema", policy.update(held, outcome))

    frames = app.dataframe(topic)
    frames.update(learn, stateful=True)
    app.run(count=events, collect=False)
    print(events / (time.monotonic() - begun[0]))


if __name__ == "__main__":
    main()
