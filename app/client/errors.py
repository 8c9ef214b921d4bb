"""What a call of the client can raise; each text is one sentence for people, and none holds a secret.

::

    ClientError
    ├── Unreachable       no server answers there
    ├── ServerError       a server answered, and not with what was asked for
    └── DigestMismatch    the bytes are not those that the pointer names
"""

from app.domain.values import JsonValue


class ClientError(Exception):
    """The root; raised itself for a URL or a bearer that could never work."""


class Unreachable(ClientError):
    """No server answers at the address, or the connection broke before the answer was whole."""


class ServerError(ClientError):
    """The server answered with an error, or with something that is no answer of a stepplane server.

    Attributes:
        status: the HTTP status.
        code: the stable name of the error; ``unexpected_answer`` where it is not in the one error shape.
        sentence: what is wrong, for people.
        request_id: what the server's log calls this request; None when it did not say.
        details: what a program can use beyond the sentence.
    """

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        request_id: str | None = None,
        details: JsonValue = None,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.sentence = sentence
        self.request_id = request_id
        self.details = details


class DigestMismatch(ClientError):
    """The bytes at a content URL are not those that its digest names.

    A newer OUTPUT under the same name does this as well as a broken transfer: ask for the pointer again.
    """

    def __init__(self, url: str, expected_sha256: str, actual_sha256: str) -> None:
        super().__init__(f"the bytes at {url} have the sha256 {actual_sha256}, not {expected_sha256}")
