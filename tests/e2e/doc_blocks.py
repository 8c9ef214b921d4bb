"""The blocks of the documentation: taken out of a page, run as a reader would run them, and made comparable.

The invariant: nothing of a page is changed but the address of the server, which the page writes as port 7777.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

TIMEOUT_SECONDS = 180
_END = "\x01"
_FENCE = re.compile(r"^```(?P<language>\w+)?(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page; ``name`` is the file that it is to be saved as, where its fence says so."""

    page: str
    line: int
    language: str
    name: str | None
    text: str


class Command(NamedTuple):
    """A command line of a console block, continued lines included, and what the page shows that it prints."""

    line: int
    text: str
    shown: str


def blocks_of(path: Path, page: str) -> list[Block]:
    """Take the fenced blocks out of a page, in order."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 2, match["language"] or "", match["name"], match["text"])
        for match in _FENCE.finditer(text)
    ]


def commands_of(block: Block) -> list[Command]:
    """Read a console block: a command begins with ``$ ``, and goes on while its line ends with a backslash."""
    commands: list[Command] = []
    is_continued = False
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            commands.append(Command(number, line[2:], ""))
        elif is_continued:
            commands[-1] = commands[-1]._replace(text=f"{commands[-1].text}\n{line}")
        else:
            commands[-1] = commands[-1]._replace(shown=f"{commands[-1].shown}{line}\n")
        is_continued = (line.startswith("$ ") or is_continued) and line.endswith("\\")
    return commands


def run_session(commands: Sequence[Command], url: str, folder: Path, database_url: str) -> list[str]:
    """Run commands one after the other in one bash, beside a server on a database, and return what each one printed."""
    lines = [f"{_at(command.text, url)}\nprintf '{_END}'" for command in commands]
    (folder / "session.sh").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run(
        ["bash", "--norc", "session.sh"],
        cwd=folder,
        env=_environment(url) | {"STEPPLANE_DATABASE_URL": database_url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    told = done.stdout.decode().replace(url.removeprefix("http://127.0.0.1"), ":7777").replace(f"{folder}/", "")
    return told.split(_END)[: len(commands)]


def run_python(block: Block, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python block as a program of its own, as it stands."""
    program = folder / "example.py"
    program.write_text(_at(block.text, url), encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(program)],
        env=_environment(url),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def _at(text: str, url: str) -> str:
    return re.sub(r"(localhost|127\.0\.0\.1):7777", rf"\1:{url.rpartition(':')[2]}", text)


def _environment(url: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "STEPPLANE_SERVER": url, "NO_PROXY": "*", "COLUMNS": "200"}


_VARIES: dict[str, re.Pattern[str]] = {
    "handle": re.compile(r"wh-(?:[0-9a-f]{32}|…)"),
    "ticket": re.compile(r"(?<=ticket=)[0-9a-f]{32}"),
    "time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"),
    "duration": re.compile(r'(?<="duration_ms":)\d+'),
    "size": re.compile(r"(?<=: )\d+(?= bytes, checked)"),
    "request": re.compile(r'(?<="request_id":")[0-9a-f]{16}'),
}
_ID = re.compile(r"\b(?:T|R|ST|out)-[0-9a-f]{16}\b")


def comparable(outputs: Sequence[str]) -> list[str]:
    """Write outputs so that they can be compared: what varies is its kind, and each id is its number of appearance.

    Digests stay: they are of the very bytes that the page shows.
    """
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        prefix = match[0].partition("-")[0]
        return numbers.setdefault(match[0], f"{prefix}-{len(numbers)}")

    def each() -> Iterator[str]:
        for output in outputs:
            text = _ID.sub(numbered, output)
            for kind, pattern in _VARIES.items():
                text = pattern.sub(f"<{kind}>", text)
            yield text.rstrip("\n")

    return list(each())
