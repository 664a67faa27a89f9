"""The codecs for large frames."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from headstart.arguments.checks import InvalidArgument

Compression = Literal["lz4", "zstd"]


class CodecMissing(ValueError):
    """The package for the requested compression is not installed."""


def require_codec(compression: str | None) -> None:
    """Raise `CodecMissing` if the codec is not installed, `InvalidArgument` if it is unknown."""
    if compression is None:
        return
    if compression not in ("lz4", "zstd"):
        raise InvalidArgument(f"compression must be lz4, zstd or None, not {compression!r}")
    if find_spec("cramjam") is None:
        raise CodecMissing(f"{compression} needs cramjam: pip install 'headstart[compression]'")
