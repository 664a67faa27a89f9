"""Which codecs large frames may be compressed with; `compressing` does it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from headstart.arguments.checks import InvalidArgument

Compression = Literal["lz4", "zstd"]


class CodecMissing(ValueError):
    """Compression was asked for where its package is not installed."""


def require_codec(compression: str | None) -> None:
    """Raise `CodecMissing` where this cannot be compressed here, `InvalidArgument` if unknown."""
    if compression is None:
        return
    if compression not in ("lz4", "zstd"):
        raise InvalidArgument(f"compression must be lz4, zstd or None, not {compression!r}")
    if find_spec("cramjam") is None:
        raise CodecMissing(f"{compression} needs cramjam: pip install 'headstart[compression]'")
