"""Curl lines: what a page shows, fetched from a shell.

The invariant: a line holds the name of the variable with the secret, never the secret; pasted into a shell, it runs
nothing but curl.
"""

import shlex

SERVER = "$STEPPLANE_SERVER"
"""Stands for the server's URL where none is configured; a script puts that in its place which the browser uses."""


def curl_line(url: str, *, needs_token: bool, etag: str | None = None) -> str:
    """Write the line that fetches a URL.

    Args:
        url: absolute, or from ``/`` on a server whose URL nobody configured.
        needs_token: whether the server asks for the operator's bearer.
        etag: what the reader has already; None to fetch in any case.
    """
    words = ["curl", "-i" if etag else "-s"]
    if needs_token:
        words += ["-H", '"Authorization: Bearer $STEPPLANE_OPERATOR_TOKEN"']
    if etag:
        words += ["-H", shlex.quote(f"If-None-Match: {etag}")]
    # A URL that starts at / is percent-encoded throughout: nothing in it means anything inside double quotes.
    words.append(f'"{SERVER}{url}"' if url.startswith("/") else shlex.quote(url))
    return " ".join(words)
