"""Embeds by an OpenAI-compatible endpoint: `POST URL/embeddings`, in batches, in bounded time.

The endpoint is asked for as many dimensions as the table holds. One that ignores that, and answers
with more (1,536, say), is projected by a fixed random matrix: cosines change by about 1 / sqrt(256)
(Johnson and Lindenstrauss, 1984; signs as in Achlioptas, 2003). Fewer are padded with zeros.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import orjson

from memory.embedding.interface import MAX_CHARACTERS, EmbeddingUnavailable, Vectors

BATCH: Final = 64
"""Texts of one request."""
LEAST_CHARACTERS: Final = 256
"""A text that is refused is halved until it would be shorter."""
REQUEST_S: Final = 5.0
"""Longest wait for a connection, or for the next bytes."""
DEADLINE_S: Final = 12.0
"""Longest time of one call of `embed`, retries included."""
ATTEMPTS: Final = 3
_BACKOFF_S: Final = 0.5
_LONGEST_WAIT_S: Final = 2.0
_MAX_BYTES: Final = 64_000_000
_TRANSIENT: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REFUSING: Final = frozenset({400, 413, 422})
_SHORT: Final = 200


class _TryAgain(Exception):
    """A failure that may pass; `wait_s`: as the server asks for."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class _TextsRefused(EmbeddingUnavailable):
    """The endpoint does not take these texts; fewer or shorter ones, perhaps."""


class EndpointEmbedder:
    """Embeds texts by HTTP. Blocks for at most `DEADLINE_S` and the last wait for a connection."""

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "",
        dimensions: int = 256,
        *,
        request_s: float = REQUEST_S,
        deadline_s: float = DEADLINE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`url`: the base URL of the API, such as https://host/v1. Raises `ValueError`."""
        if not model:
            raise ValueError(
                "an endpoint for embeddings needs a model: set HEADSTART_EMBEDDING_MODEL"
            )
        parts = urlsplit(url)
        self._https, self._netloc = parts.scheme == "https", parts.netloc
        query = f"?{parts.query}" if parts.query else ""  # Azure's api-version
        self._path = f"{parts.path.rstrip('/')}/embeddings{query}"
        self._name, self._key, self._dimensions = model, key, dimensions
        self._request_s, self._deadline_s, self._sleep = request_s, deadline_s, sleep
        self._asks_for_dimensions = True
        self._answered_with: int | None = None

    @property
    def model(self) -> str:
        """Name and stored dimensions: vectors of another length are those of another model."""
        return f"{self._name}/{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """Length of a vector, as it is returned."""
        return self._dimensions

    def embed(self, texts: Sequence[str], /) -> Vectors:
        """Return unit vectors, shape (texts, dimensions); 0 for a text of white space."""
        found: Vectors = np.zeros((len(texts), self._dimensions), np.float32)
        wanted = [(at, cut) for at, text in enumerate(texts) if (cut := _sendable(text))]
        until = time.monotonic() + self._deadline_s
        for begin in range(0, len(wanted), BATCH):
            batch = wanted[begin : begin + BATCH]
            found[[at for at, _ in batch]] = self._batch([text for _, text in batch], until)
        return found

    def _batch(self, texts: list[str], until: float) -> Vectors:
        """Return the vectors of some texts; if they are refused, of fewer, then of shorter ones.

        One text that is too long for the model must not keep the others from their vectors.
        """
        try:
            return self._tried(texts, until)
        except _TextsRefused:
            if time.monotonic() > until:
                raise
            if len(texts) > 1:
                half = len(texts) // 2
                parts = [self._batch(part, until) for part in (texts[:half], texts[half:])]
                return np.concatenate(parts)
            shorter = texts[0][: len(texts[0]) // 2]
            if len(shorter) < LEAST_CHARACTERS or shorter.isspace():
                raise
            return self._batch([shorter], until)

    def _tried(self, texts: list[str], until: float) -> Vectors:
        for attempt in range(ATTEMPTS):
            try:
                return self._unit(self._answer(texts, until), len(texts))
            except _TryAgain as error:
                wait_s = min(max(error.wait_s, _BACKOFF_S * 2**attempt), _LONGEST_WAIT_S)
                last = attempt == ATTEMPTS - 1 or time.monotonic() + wait_s > until
                if last:
                    raise EmbeddingUnavailable(str(error)) from error
                self._sleep(wait_s)
        raise AssertionError

    def _answer(self, texts: list[str], until: float) -> Any:
        """Return the decoded answer to one request."""
        status, headers, body = self._post(texts, until)
        if status == 400 and self._asks_for_dimensions and b"dimension" in body.lower():
            self._asks_for_dimensions = False  # a model of one length
            status, headers, body = self._post(texts, until)
        if status in _TRANSIENT:
            raise _TryAgain(f"{self._netloc} answered {status}", _seconds(headers))
        if status != 200:
            said = " ".join(body[:_SHORT].decode(errors="replace").split())
            if self._key:
                said = said.replace(self._key, "***")
            kind = _TextsRefused if status in _REFUSING else EmbeddingUnavailable
            raise kind(f"{self._netloc} answered {status}: {said}")
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise _TryAgain(f"{self._netloc} answered with no JSON: {error}") from error

    def _post(self, texts: list[str], until: float) -> tuple[int, http.client.HTTPMessage, bytes]:
        asked: dict[str, Any] = {"model": self._name, "input": texts, "encoding_format": "float"}
        if self._asks_for_dimensions:
            asked["dimensions"] = self._dimensions
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers |= {"Authorization": f"Bearer {self._key}", "api-key": self._key}
        connection = self._connection()
        try:
            connection.connect()
            with _cut_off(connection.sock, until):
                connection.request("POST", self._path, orjson.dumps(asked), headers)
                response = connection.getresponse()
                body = b"".join(self._read(response))
            return response.status, response.headers, body
        except (OSError, http.client.HTTPException) as error:
            what = str(error) or type(error).__name__
            raise _TryAgain(f"no answer from {self._netloc}: {what}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._https:
            return http.client.HTTPSConnection(
                self._netloc, timeout=self._request_s, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(self._netloc, timeout=self._request_s)

    def _read(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        size = 0
        while part := response.read1(1 << 16):
            size += len(part)
            if size > _MAX_BYTES:
                raise http.client.HTTPException("the answer is too large")
            yield part
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)

    def _unit(self, answer: Any, count: int) -> Vectors:
        """Return the vectors of an answer in the order of the texts, each of length 1."""
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = np.asarray([row["embedding"] for row in rows], np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise EmbeddingUnavailable(
                f"{self._netloc} answered with no vectors of one length: {error!r:.{_SHORT}}"
            ) from error
        if vectors.ndim != 2 or vectors.shape[0] != count or not vectors.shape[1]:
            raise EmbeddingUnavailable(
                f"{self._netloc} answered with vectors of shape {vectors.shape} for {count} texts"
            )
        if not np.isfinite(vectors).all():
            raise EmbeddingUnavailable(f"{self._netloc} answered with numbers that are not finite")
        if self._answered_with not in (None, vectors.shape[1]):
            raise EmbeddingUnavailable(
                f"{self._netloc} answered with {vectors.shape[1]} dimensions, and before with "
                f"{self._answered_with}: give the changed model another name"
            )
        self._answered_with = vectors.shape[1]
        return self._fitted(vectors)

    def _fitted(self, vectors: Vectors) -> Vectors:
        length = vectors.shape[1]
        if length > self._dimensions:
            vectors = vectors @ projection(length, self._dimensions)
        norm = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        found: Vectors = np.zeros((len(vectors), self._dimensions), np.float32)
        np.divide(vectors, norm, out=found[:, : vectors.shape[1]], where=norm > 0)
        return found


@lru_cache(maxsize=4)
def projection(length: int, dimensions: int) -> npt.NDArray[np.float32]:
    """Return the matrix that projects vectors; the same on every machine and in every version.

    Signs from a counter-based generator: numpy's own streams may change between versions.
    """
    bits = np.random.Philox(key=length).random_raw(-(-length * dimensions // 64))
    signs = np.unpackbits(bits.astype("<u8").view(np.uint8))[: length * dimensions]
    scale = np.float32(1 / np.sqrt(dimensions))
    return np.where(signs.reshape(length, dimensions), scale, -scale).astype(np.float32)


@contextmanager
def _cut_off(connection: socket.socket, until: float) -> Iterator[None]:
    """Shut a connection down at a time; raises `TimeoutError` then.

    The socket's own timeout begins again with each byte, so a slow server could take for ever.
    """
    timer = threading.Timer(max(0.0, until - time.monotonic()), _shut_down, [connection])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if time.monotonic() >= until:  # whatever error, or end, was seen
            raise TimeoutError("the answer takes too long")


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _sendable(text: str) -> str:
    """Return a text as it is sent; "" for one that is not."""
    cut = text[:MAX_CHARACTERS].encode(errors="replace").decode()
    return "" if cut.isspace() else cut


def _seconds(headers: http.client.HTTPMessage) -> float:
    try:
        return float(headers.get("Retry-After") or 0)
    except ValueError:  # a date
        return 0.0
