"""Connections: what a client does to one before, between and while its requests are read."""

import asyncio
import contextlib
import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.api.connections import Bounds
from app.config import Settings
from app.main import create_app
from app.running import raise_descriptors, server_of

GET = b"GET /v1/healthz HTTP/1.1\r\nhost: x\r\n\r\n"
Dial = Callable[[], socket.socket]


@contextlib.contextmanager
def listening(
    home: Path, *, keep_alive: float = 60.0, most: int = 1_000, bounds: Bounds | None = None
) -> Iterator[Dial]:
    """Serve on a real socket, with these bounds; yields what opens a connection to it."""
    app = create_app(Settings(database_url=f"sqlite:///{home}/stepplane.db"))
    server = server_of(app, keep_alive_seconds=keep_alive, max_connections=most, bounds=bounds, stops_within=1)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        address = listener.getsockname()
        thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listener]),))
        thread.start()
        try:
            yield lambda: socket.create_connection(address, timeout=15)
        finally:
            server.should_exit = True
            thread.join()


def rest_of(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            pieces.append(piece)
    return b"".join(pieces)


def refusal(connection: socket.socket) -> tuple[int, str]:
    """The status and code of an error in the one shape, after which the connection is closed."""
    head, _, body = rest_of(connection).partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert b"content-type: application/json" in head.lower()
    said = json.loads(body)
    assert f"x-request-id: {said['request_id']}".encode() in head.lower()
    assert said["error"]
    return int(head.split()[1]), said["code"]


def ask(connection: socket.socket) -> bytes:
    """The status of a plain request on a connection that stays open."""
    connection.sendall(GET)
    answer = b""
    while not answer.endswith(b"ok"):
        piece = connection.recv(4096)
        assert piece, answer
        answer += piece
    return answer.split()[1]


@pytest.fixture(scope="module")
def dial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dial]:
    """A server with its usual bounds on bytes and short ones on time."""
    bounds = Bounds(head_seconds=0.3, body_seconds=0.3)
    with listening(tmp_path_factory.mktemp("usual"), keep_alive=0.5, bounds=bounds) as opened:
        yield opened


class TestHeads:
    """The head of a request."""

    @pytest.mark.parametrize("size", [64 * 1024 + 1, 1024 * 1024])
    def test_a_long_head_is_431(self, dial: Dial, size: int) -> None:
        """One byte over 64 KiB of headers is refused, and so is any more."""
        start = b"GET /v1/healthz HTTP/1.1\r\nhost: x\r\nx-long: "
        with dial() as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(start + b"a" * (size - len(start) - 4) + b"\r\n\r\n")
            assert refusal(connection) == (431, "head_too_large")

    def test_many_short_headers_are_counted_too(self, dial: Dial) -> None:
        """It is the whole head that is bounded, not each line."""
        with dial() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000)
            assert refusal(connection) == (431, "head_too_large")

    def test_a_long_url_is_414(self, dial: Dial) -> None:
        """A URL that fills the head alone is told as such."""
        with dial() as connection:
            connection.sendall(b"GET /" + b"a" * 100_000)
            assert refusal(connection) == (414, "url_too_long")

    def test_a_head_of_just_64_kib_is_answered(self, dial: Dial) -> None:
        """The bound itself is within it, whichever way the bytes are cut."""
        start = b"GET /v1/healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-long: "
        head = start + b"a" * (64 * 1024 - len(start) - 4) + b"\r\n\r\n"
        for cut in (1, 1000, 65_535):
            with dial() as connection:
                connection.sendall(head[:cut])
                connection.sendall(head[cut:])
                assert rest_of(connection).startswith(b"HTTP/1.1 200 ")

    def test_requests_one_behind_the_other_are_not_one_head(self, dial: Dial) -> None:
        """Heads of 100 KiB together, sent in one go, are each their own."""
        with dial() as connection:
            connection.sendall(GET * 3_000 + GET.replace(b"host", b"connection: close\r\nhost"))
            assert rest_of(connection).count(b"HTTP/1.1 200 ") == 3_001

    def test_a_head_that_does_not_end_is_408(self, dial: Dial) -> None:
        """Its time begins with its first byte, also behind an answered request."""
        for first in (b"", GET):
            with dial() as connection:
                if first:
                    assert ask(connection) == b"200"
                connection.sendall(GET[:20])
                assert refusal(connection) == (408, "request_timeout")

    @pytest.mark.parametrize(
        "sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\na b: c\r\n\r\n", b"\x16\x03\x01\x02\x00"]
    )
    def test_what_is_no_http_is_400_in_the_one_shape(self, dial: Dial, sent: bytes) -> None:
        """An error ahead of the application reads as any other."""
        with dial() as connection:
            connection.sendall(sent)
            assert refusal(connection) == (400, "malformed_request")


class TestSilence:
    """Connections that wait for their client."""

    @pytest.mark.parametrize("sent", [b"", b"\r\n", GET])
    def test_a_silent_connection_is_closed(self, dial: Dial, sent: bytes) -> None:
        """One that never sent a byte, only line ends, or one request: closed without a word of its own."""
        with dial() as connection:
            connection.sendall(sent)
            assert rest_of(connection).count(b"HTTP/1.1") == (1 if sent == GET else 0)

    def test_a_body_that_stands_still_is_408(self, dial: Dial) -> None:
        """Nothing of it comes, or nothing more."""
        for framing in (
            b"content-length: 9\r\n\r\n",
            b"content-length: 9\r\n\r\nhalf",
            b"transfer-encoding: chunked\r\n\r\n",
        ):
            with dial() as connection:
                connection.sendall(b"POST /v1/tasks HTTP/1.1\r\nhost: x\r\n" + framing)
                assert refusal(connection) == (408, "request_timeout")

    @pytest.mark.parametrize("endless", [b"4;" + b"a" * 300_000, b"0\r\n" + b"x: y\r\n" * 50_000])
    def test_framing_without_an_end_is_refused(self, dial: Dial, endless: bytes) -> None:
        """Chunk extensions and trailers are bounded as heads are."""
        with dial() as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"POST /v1/tasks HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + endless)
            assert refusal(connection)[0] == 400


class TestCrowd:
    """How many connections there may be."""

    def test_the_oldest_idle_one_makes_room(self, tmp_path: Path) -> None:
        """A new connection is answered; who has waited longest without a request is closed, and nobody else."""
        with listening(tmp_path, most=5) as dial, contextlib.ExitStack() as held:
            opened = [held.enter_context(dial()) for _ in range(5)]
            for connection in opened:
                ask(connection)
            ask(opened[0])  # no longer the oldest
            assert ask(held.enter_context(dial())) == b"200"
            assert rest_of(opened[1]) == b""
            assert [ask(connection) for connection in (opened[0], *opened[2:])] == [b"200"] * 4

    def test_where_none_is_idle_a_new_one_is_503(self, tmp_path: Path) -> None:
        """Requests that are under way are not ended for newcomers."""
        with listening(tmp_path, most=2) as dial, contextlib.ExitStack() as held:
            for _ in range(2):
                busy = held.enter_context(dial())
                busy.sendall(b"POST /v1/tasks HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
                assert b"100 Continue" in busy.recv(4096)
            assert refusal(held.enter_context(dial())) == (503, "too_many_connections")

    def test_descriptors_are_left_for_the_rest(self) -> None:
        """There are fewer connections than descriptors."""
        most = raise_descriptors()
        assert 0 < most < resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_server_that_stops_answers_an_unfinished_upload_in_the_one_shape(tmp_path: Path) -> None:
    """It waits for a while, and then says so: never in plain text."""
    with contextlib.ExitStack() as held:
        with listening(tmp_path) as dial:
            connection = held.enter_context(dial())
            connection.sendall(
                b"POST /v1/tasks HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n"
            )
            assert b"100 Continue" in connection.recv(4096)
        assert refusal(connection) == (503, "stopping")
