"""The endpoint for embeddings, against a real HTTP server that misbehaves in every known way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from memory.embedding.choice import EmbeddingConfig, endpoint_problem, make_embedder
from memory.embedding.endpoint import ATTEMPTS, BATCH, EndpointEmbedder, projection
from memory.embedding.interface import EmbeddingUnavailable
from memory.embedding.wordllama import WordLlamaEmbedder

KEY = "planted-key"
Answer = Callable[["_Handler", dict[str, Any]], None]


def vectors(asked: dict[str, Any], length: int | None = None) -> list[Any]:
    size = asked.get("dimensions", 1_536) if length is None else length
    return [
        {"index": at, "embedding": [float(len(text)), *[1.0] * (size - 1)]}
        for at, text in enumerate(asked["input"])
    ]


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, dict(self.headers), asked))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self, asked)

    def say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def good(handler: _Handler, asked: dict[str, Any]) -> None:
    rows = vectors(asked)
    handler.say(200, json.dumps({"data": rows[::-1]}).encode())


def of_length(length: int) -> Answer:
    return lambda handler, asked: handler.say(
        200, json.dumps({"data": vectors(asked, length)}).encode()
    )


def status(code: int, body: bytes = b"busy", **headers: str) -> Answer:
    return lambda handler, _asked: handler.say(code, body, **headers)


def cut(handler: _Handler, asked: dict[str, Any]) -> None:
    body = json.dumps({"data": vectors(asked)}).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])


def hang_up(handler: _Handler, _asked: dict[str, Any]) -> None:
    handler.close_connection = True


def trickle(handler: _Handler, _asked: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(200):
        try:
            handler.wfile.write(b" ")
            handler.wfile.flush()
        except OSError:
            return
        time.sleep(0.02)


def trickle_headers(handler: _Handler, _asked: dict[str, Any]) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(200):
        try:
            handler.wfile.write(b" ")
            handler.wfile.flush()
        except OSError:
            return
        time.sleep(0.05)


def silent(handler: _Handler, _asked: dict[str, Any]) -> None:
    handler.server.released.wait(10)


@pytest.fixture
def server() -> Iterator[Any]:
    found: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    found.daemon_threads = True
    found.seen, found.answers, found.released = [], [good], threading.Event()
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.released.set()
    found.shutdown()
    found.server_close()
    thread.join()


def embedder(server: Any, **more: Any) -> EndpointEmbedder:
    url = f"http://127.0.0.1:{server.server_address[1]}/v1/"
    given = {"dimensions": 8, "request_s": 0.3, "deadline_s": 5.0, "sleep": lambda _s: None}
    return EndpointEmbedder(url, "small", KEY, **{**given, **more})


def test_texts_in_batches_in_order_with_the_key(server: Any) -> None:
    texts = ["x" * (1 + n % 9) for n in range(BATCH + 5)]
    found = embedder(server).embed(texts)
    assert found.shape == (BATCH + 5, 8)
    assert np.allclose(np.linalg.norm(found, axis=1), 1)
    assert np.array_equal(found[0], found[9])
    assert found[8][0] > found[7][0]
    assert [len(asked["input"]) for _, _, asked in server.seen] == [BATCH, 5]
    path, headers, asked = server.seen[0]
    assert (path, headers["Authorization"]) == ("/v1/embeddings", f"Bearer {KEY}")
    assert (asked["model"], asked["dimensions"]) == ("small", 8)


def test_blank_texts_are_not_sent(server: Any) -> None:
    found = embedder(server).embed(["", " \n", "a", "half \ud800 pair", "y" * 10_000])
    assert not found[:2].any()
    assert found[2:].any(axis=1).all()
    assert [len(text) for text in server.seen[0][2]["input"]] == [1, 11, 8_000]


def test_an_endpoint_of_a_fixed_length_is_projected(server: Any) -> None:
    refuses = status(400, b'{"error": "this model does not support dimensions"}')
    server.answers = [refuses, of_length(1_536)]
    one = embedder(server)
    assert one.embed(["a", "bb"]).shape == (2, 8)
    assert "dimensions" in server.seen[0][2]
    assert "dimensions" not in server.seen[1][2]
    assert one.embed(["a"]).shape == (1, 8)
    assert len(server.seen) == 3


def test_a_projection_keeps_cosines_and_never_changes() -> None:
    draw = np.random.default_rng(3)
    texts = draw.normal(size=(50, 1_536)).astype(np.float32)
    texts[:25] += draw.normal(size=1_536)  # half of them alike
    matrix = projection(1_536, 256)
    assert np.array_equal(np.sign(matrix[0, :12]), [-1, 1, 1, -1, -1, -1, 1, 1, 1, -1, -1, -1])

    def cosines(rows: Any) -> Any:
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit @ unit.T

    difference = cosines(texts @ matrix) - cosines(texts)
    assert np.abs(difference).mean() < 0.07


def test_short_vectors_are_padded(server: Any) -> None:
    server.answers = [of_length(5)]
    found = embedder(server).embed(["a"])
    assert found.shape == (1, 8)
    assert not found[0, 5:].any()


@pytest.mark.parametrize(
    "bad",
    [status(429, Retry_After="0"), status(500), status(503, Retry_After="soon"), cut, hang_up],
)
def test_what_may_pass_is_tried_again(server: Any, bad: Answer) -> None:
    server.answers = [bad, good]
    assert embedder(server).embed(["a"]).any()
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (status(429), "answered 429"),
        (status(500), "answered 500"),
        (cut, "no answer"),
        (hang_up, "no answer"),
        (status(200, b"<html>"), "no JSON"),
        (status(200, b'{"data": [{"index": 0, "embedding": [NaN]}]}'), "no JSON"),
    ],
)
def test_what_does_not_pass_is_given_up(server: Any, bad: Answer, why: str) -> None:
    server.answers = [bad]
    with pytest.raises(EmbeddingUnavailable, match=why):
        embedder(server).embed(["a"])
    assert len(server.seen) == ATTEMPTS


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{}", "no vectors"),
        (b"[]", "no vectors"),
        (b'{"data": []}', "shape"),
        (b'{"data": [{"index": 0, "embedding": []}]}', "shape"),
        (b'{"data": [{"index": 0, "embedding": [null, 1]}]}', "no vectors|not finite"),
        (b'{"data": [{"index": 0, "embedding": [1e99, 1]}]}', "not finite"),
        (b'{"data": [{"index": 0, "embedding": "AAA="}]}', "no vectors"),
        (
            b'{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}',
            "no vectors",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_unusable_vectors_are_refused_at_once(server: Any, body: bytes, why: str) -> None:
    server.answers = [status(200, body)]
    with pytest.raises(EmbeddingUnavailable, match=why):
        embedder(server).embed(["a"])
    assert len(server.seen) == 1


def test_a_refusal_names_the_reason_and_not_the_key(server: Any) -> None:
    server.answers = [status(401, b"wrong key planted-key\n given")]
    with pytest.raises(EmbeddingUnavailable, match=r"answered 401: wrong key \*\*\* given"):
        embedder(server).embed(["a"])
    assert KEY not in repr(EmbeddingConfig("http://x", "m", KEY))


def test_a_change_of_the_length_is_refused(server: Any) -> None:
    server.answers = [of_length(20), of_length(24)]
    one = embedder(server)
    one.embed(["a"])
    with pytest.raises(EmbeddingUnavailable, match="20: give the changed model another name"):
        one.embed(["a"])


def longest(characters: int) -> Answer:
    """Take texts of at most so many characters, as a model of so many tokens does."""

    def answer(handler: _Handler, asked: dict[str, Any]) -> None:
        fits = all(len(text) <= characters for text in asked["input"])
        (good if fits else status(413, b"too long"))(handler, asked)

    return answer


def test_a_text_that_is_too_long_is_cut_and_the_others_are_whole(server: Any) -> None:
    server.answers = [longest(1_000)]
    texts = ["a", "b" * 3_000, "ccc", "d" * 1_000]
    found = embedder(server).embed(texts)
    assert found.any(axis=1).all()
    expected = embedder(server).embed(["a", "b" * 750, "ccc", "d" * 1_000])
    assert np.array_equal(found, expected)


def test_a_refusal_of_every_text_ends_soon(server: Any) -> None:
    server.answers = [status(400, b"no such model")]
    with pytest.raises(EmbeddingUnavailable, match="answered 400: no such model"):
        embedder(server).embed(["x" * 8_000] * BATCH)
    assert len(server.seen) < 16


@pytest.mark.parametrize("bad", [silent, trickle, trickle_headers])
def test_a_slow_endpoint_takes_bounded_time(server: Any, bad: Answer) -> None:
    server.answers = [bad]
    begun = time.monotonic()
    with pytest.raises(EmbeddingUnavailable, match="no answer"):
        embedder(server, deadline_s=0.5).embed(["a"])
    assert time.monotonic() - begun < 5


def test_nobody_listens(closed: str) -> None:
    one = EndpointEmbedder(f"http://{closed}/v1", "small", sleep=lambda _s: None)
    with pytest.raises(EmbeddingUnavailable, match="no answer"):
        one.embed(["a"])


def test_the_choice_of_the_model() -> None:
    assert isinstance(make_embedder(EmbeddingConfig()), WordLlamaEmbedder)
    chosen = make_embedder(EmbeddingConfig("https://host/v1", "small", "", 128))
    assert (chosen.model, chosen.dimensions) == ("small/128", 128)
    with pytest.raises(ValueError, match="HEADSTART_EMBEDDING_MODEL"):
        make_embedder(EmbeddingConfig("https://host/v1"))


@pytest.mark.parametrize("url", ["host/v1", "ftp://host", "http://", "http://h:x", "http://[::1"])
def test_wrong_urls(url: str) -> None:
    assert endpoint_problem(url)
    assert "credentials" in endpoint_problem("https://user:secret@host/v1")
    assert not endpoint_problem("https://host:8443/v1")
