"""Which embedding model is used: wordllama in this process, or an endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from memory.embedding.interface import Embedder


@dataclass(frozen=True)
class EmbeddingConfig:
    """An OpenAI-compatible endpoint; without a URL the default model."""

    url: str = field(default="", repr=False)  # its query may have a key
    model: str = ""
    key: str = field(default="", repr=False)
    dimensions: int = 256


def endpoint_problem(url: str) -> str:
    """Return why a URL cannot be that of an endpoint; "" if it can."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its message quotes parts of the URL
        return "is no URL"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "give the base URL of the API, such as https://host/v1"
    if parts.username or parts.password:
        return "holds credentials: put the key into HEADSTART_EMBEDDING_KEY"
    return ""


def make_embedder(config: EmbeddingConfig) -> Embedder:
    """Return the configured model; nothing is loaded or asked yet. Raises `ValueError`."""
    if config.url:
        from memory.embedding.endpoint import EndpointEmbedder

        return EndpointEmbedder(config.url, config.model, config.key, config.dimensions)
    from memory.embedding.wordllama import WordLlamaEmbedder

    return WordLlamaEmbedder()
