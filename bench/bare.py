"""The bare answer: the least that a program on the same ASGI server can do, and so what all else is compared with.

The invariant: it is uvicorn as it comes, with uvloop, httptools and without an access log.
"""

import socket
import sys

import uvicorn
from starlette.types import Receive, Scope, Send

BODY = b'{"ok":true}'

_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]


async def answer(scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer whatever is asked."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": BODY})


def main() -> None:
    """Serve on a free loopback port, and say on which."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        sys.stderr.write(f"listens on http://127.0.0.1:{listener.getsockname()[1]}\n")
        sys.stderr.flush()
        config = uvicorn.Config(answer, lifespan="off", log_config=None, access_log=False, server_header=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
