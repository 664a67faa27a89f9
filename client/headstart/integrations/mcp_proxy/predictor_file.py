"""Keeps what a predictor has learned in a file, as each client starts a proxy of its own."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from headstart.arguments.checks import InvalidArgument
from headstart.prediction.predictor import CallPredictor
from headstart.prediction.state_format import UnknownState

_LOG = logging.getLogger(__name__)


def predictor_of(path: Path | None) -> CallPredictor | None:
    """Return the predictor in a file, or a new one if there is no file; None without a path.

    Raises `InvalidArgument` for a file that cannot be read.
    """
    if path is None:
        return None
    try:
        return CallPredictor.from_bytes(path.read_bytes())
    except FileNotFoundError:
        return CallPredictor()
    except (OSError, UnknownState) as error:
        raise InvalidArgument(f"--state {path}: {error}") from error


def save(predictor: CallPredictor | None, path: Path | None) -> None:
    """Write a predictor to its file, which only its user may read; a failure is warned of.

    Of two proxies with one file, the one that ends last keeps what it has learned.
    """
    if path is None or predictor is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as written:  # mode 0600
            unfinished = Path(written.name)
        try:
            unfinished.write_bytes(predictor.to_bytes())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        _LOG.warning("what was learned cannot be saved: %s", error)
