"""``stepplane demo`` as a stranger runs it: real folders, real processes, and nothing of them left behind."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.demo.folder import read_text, scan_folder
from tests.e2e.conftest import Server

TIMEOUT_SECONDS = 60
PYTHON_SOURCE = """\
class Engine:
    def longest(self):
        # a comment

        first = 1
        second = 2
        return first + second

async def short():
    pass
"""
JAVASCRIPT_SOURCE = """\
function outer(a, b) {
  if (a) {
    return b;
  }
  return a;
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that was there before any demo, and outlives them."""
    home = tmp_path_factory.mktemp("server")
    running = Server(f"sqlite:///{home / 'stepplane.db'}", home / "server.log")
    yield running
    assert running.stop() == 0


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder of one file, for what does not depend on the pipeline."""
    root = tmp_path / "small"
    root.mkdir()
    (root / "README.md").write_text("# Small\n")
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with everything that a scan may meet."""
    root = tmp_path_factory.mktemp("project")
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("hidden")
    (root / "src" / "engine.py").write_text(PYTHON_SOURCE)
    (root / "src" / "broken.py").write_text("def broken(:\n")
    (root / "page.js").write_text(JAVASCRIPT_SOURCE)
    (root / "README.md").write_text("# Title\n\nText.\n")
    (root / "Makefile").write_text("all:\n")
    (root / "plan 計画.yaml").write_text("a: 1\n# why\n")
    (root / "setup.toml").write_text("[a]\n")
    (root / "data.json").write_text("{}")
    (root / "picture.png").write_bytes(b"\x89PNG\x00\x00")
    (root / "latin.txt").write_bytes(b"\xe9")
    (root / "large.txt").write_bytes(b"x" * 600_000)
    (root / "link").symlink_to("README.md")
    return root


class Demo:
    """Starts demos whose every process can be found again by its environment."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("STEPPLANE_")}
        self.env |= {"HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
        self.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.env['PATH']}"  # where the command stands
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "app", "demo", "--port", str(self.port), "--pace", "0", *arguments]

    def run(self, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments), env=self.env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        assert done.returncode == status, done
        assert "Traceback" not in done.stderr
        return done

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            self.command(*arguments), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=TIMEOUT_SECONDS)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Start the server that a demo of this home would start, without a demo."""
        command = [sys.executable, "-m", "app", "serve", "--port", str(self.port)]
        with subprocess.Popen(command, env=self.env, stderr=subprocess.DEVNULL) as process:
            try:
                deadline = time.monotonic() + TIMEOUT_SECONDS
                while not self.is_listening() and time.monotonic() < deadline:
                    time.sleep(0.05)
                yield
            finally:
                process.terminate()

    def processes(self) -> dict[int, str]:
        """Find what runs with this home: process id to command line."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"HOME={self.home}\0".encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().replace("\0", " ")
        return found

    def is_listening(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


@pytest.fixture(scope="module")
def finished(server: Server, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> "Finished":
    """A demo that ran on the server that was there."""
    home = tmp_path_factory.mktemp("home")
    return Finished(home, *_ids(Demo(home).run(str(folder), "--server", server.url).stdout))


class Finished(NamedTuple):
    """A run that a demo has made."""

    home: Path
    task_id: str
    run_id: str


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo with its own home; whatever a failed test leaves of it is ended."""
    made = Demo(tmp_path / "home")
    made.home.mkdir()
    yield made
    for process_id in made.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


def _get(url: str) -> Any:
    return httpx.get(url, trust_env=False)


def _ids(output: str) -> tuple[str, str]:
    found = re.search(r"task +(T-\S+) +run (R-\S+)", output)
    assert found
    return found[1], found[2]


def _read_until(process: subprocess.Popen[str], words: str) -> str:
    """Read the output of a demo up to a line that holds some words; a demo that ends before fails the test."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    assert process.stderr is not None
    pytest.fail(f"{words!r} never came: {''.join(lines)}{process.stderr.read()}")


class TestTheRun:
    def test_it_runs_a_pipeline_and_shows_where_it_is(self, demo: Demo, folder: Path) -> None:
        """Every step is shown as it passes, the first review is blocked, and its retry is not."""
        output = demo.run(str(folder), "--exit").stdout
        rows = re.findall(r"^ +(passed|blocked) +(\S+) +attempt (\d) +occurrence (\d)", output, re.MULTILINE)
        assert rows[0] == ("passed", "inventory", "1", "1")
        measured = [row for row in rows if row[1] == "measure"]
        assert sorted(measured) == [("passed", "measure", "1", str(number)) for number in range(1, 7)]
        assert rows[7:] == [
            ("passed", "longest-functions", "1", "1"),
            ("passed", "source-report", "1", "1"),
            ("blocked", "review", "1", "1"),
            ("passed", "source-report", "2", "1"),
            ("passed", "review", "2", "1"),
        ]
        assert demo.processes() == {}

    def test_what_it_puts_out_is_true(self, finished: Finished, server: Server) -> None:
        """The outputs say of the folder what is so, and a server that was there is used and left up."""
        plane = f"{server.url}/v1/tasks/{finished.task_id}/runs/{finished.run_id}/steps"
        names = [step["name"] for step in _get(plane).json()["steps"]]
        assert names == ["inventory", "longest-functions", "measure", "report.md", "review", "source-report"]
        inventory = _get(f"{plane}/scan/content?format=json").json()
        assert "link" not in {file["path"] for file in inventory["files"]}
        assert "plan 計画.yaml" in {file["path"] for file in inventory["files"]}
        assert inventory["skipped"] == {"binary": 2, "links and special files": 1, "over 524288 bytes": 1}
        functions = _get(f"{plane}/longest/content?path=%24.functions").json()
        assert [(each["name"], each["line"], each["lines"]) for each in functions] == [
            ("outer", 1, 6),
            ("Engine.longest", 2, 6),
            ("short", 9, 2),
        ]
        assert _get(f"{plane}/functions/content?path=%24.not_understood").json() == ["src/broken.py"]
        python = next(
            measure
            for measure in (_get(f"{plane}/sizes/content?format=json&occurrence={n}").json() for n in range(1, 7))
            if measure["language"] == "Python"
        )
        assert (python["files"], python["lines"], python["comment_lines"], python["blank_lines"]) == (2, 11, 1, 2)
        assert "What was left out" not in _get(f"{plane}/report/content?attempt=1").text
        report = _get(f"{plane}/report/content?format=raw").text
        assert "## What was left out" in report
        assert _get(f"{plane}/report.md/content").text == report
        assert _get(f"{plane}/_ctx/content?path=%24.verdict").json() == "pass"

    def test_its_files_are_materialized(self, finished: Finished, server: Server) -> None:
        """What a step put out lies as a file in the demo's own directory."""
        steps = f"{server.url}/v1/tasks/{finished.task_id}/runs/{finished.run_id}/steps"
        step = _get(f"{steps}/inventory").json()
        path = Path(step["file_path"])
        assert path.is_relative_to(finished.home)
        assert path.read_bytes() == _get(f"{server.url}{step['content_url']}").content

    def test_it_works_again_on_the_same_server(
        self, demo: Demo, small: Path, finished: Finished, server: Server
    ) -> None:
        """A second demo is a task of its own."""
        task_id, run_id = _ids(demo.run(str(small), "--server", server.url).stdout)
        assert task_id != finished.task_id
        runs = _get(f"{server.url}/v1/runs").json()["runs"]
        assert [(run["id"], run["status"]) for run in runs] == [(run_id, "done"), (finished.run_id, "done")]


class TestTheScan:
    def test_it_is_bounded(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A folder of too many files is cut, and the scan says by how many."""
        whole = scan_folder(folder)
        monkeypatch.setattr("app.demo.folder.MAX_FILES", 3)
        cut = scan_folder(folder)
        assert cut["files"] == whole["files"][:3]
        assert cut["skipped"]["over the limit of files"] > 0

    def test_a_file_that_went_away_is_empty(self, tmp_path: Path) -> None:
        """What changes between the steps of a run is no crash."""
        assert read_text(tmp_path, "gone.py") == ""


class TestTheTour:
    def test_each_line_works_as_it_is_printed(self, demo: Demo, folder: Path) -> None:
        """Pasted into a shell, each curl and stepplane line brings what the tour says it brings."""
        with demo.started(str(folder)) as process:
            output = _read_until(process, "The server stays up")
            commands = [line.strip() for line in output.splitlines() if re.match(r"  (curl|stepplane|for) ", line)]
            assert len(commands) == 15
            results = {command: self._pasted(command, demo) for command in commands}
            assert all(results.values()), results
            assert [text for command, text in results.items() if "If-None-Match" in command] == ["304\n"]
            (etags,) = (text.split() for command, text in results.items() if command.startswith("for "))
            assert len(etags) == 6
            assert len(set(etags)) == 2
            (first_file,) = (text for command, text in results.items() if "%5B0%5D" in command)
            assert json.loads(first_file) == "Makefile"
            (prune,) = (line for line in output.splitlines() if line.startswith("  STEPPLANE_DATABASE_URL="))
            where = demo.home / "data" / "stepplane" / "stepplane.db"
            assert f"kept in sqlite:///{where}" in output
            assert self._pasted(prune, demo) == f"would remove 0 runs, 0 bytes of outputs, from sqlite:///{where}\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_SECONDS) == 0
        assert (demo.processes(), demo.is_listening()) == ({}, False)

    @staticmethod
    def _pasted(command: str, demo: Demo) -> str:
        line = (
            command.replace("stepplane", f"{sys.executable} -m app", 1) if command.startswith("stepplane") else command
        )
        done = subprocess.run(
            ["/bin/sh", "-c", line], env=demo.env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        return done.stdout


class TestTheEnd:
    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_stopped_in_the_middle_it_leaves_nothing(
        self, demo: Demo, small: Path, number: signal.Signals, status: int
    ) -> None:
        """Ctrl-C ends every process that it started; no worker's arguments held its handle; the run is interrupted."""
        with demo.started(str(small), "--exit") as process:
            output = _read_until(process, "inventory ")
            seen = demo.processes()
            assert any("app serve" in line for line in seen.values())
            assert not any("wh-" in line for line in seen.values())
            process.send_signal(number)
            _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        assert (process.returncode, errors) == (status, "")
        assert (demo.processes(), demo.is_listening()) == ({}, False)
        with demo.serving():
            assert _get(f"{demo.url}/v1/runs/{_ids(output)[1]}").json()["status"] == "interrupted"

    def test_a_server_that_dies_is_told(self, demo: Demo, small: Path) -> None:
        """When the server that stays up ends by itself, the demo says so and ends too."""
        with demo.started(str(small)) as process:
            _read_until(process, "The server stays up")
            (server_id,) = (number for number, line in demo.processes().items() if "app serve" in line)
            os.kill(server_id, signal.SIGKILL)
            _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 1
        assert errors.startswith("stepplane: the server ended")


class TestFailing:
    def test_a_folder_without_files_is_one_line(self, demo: Demo, tmp_path: Path) -> None:
        """There is nothing to show of an empty folder."""
        (tmp_path / "empty").mkdir()
        done = demo.run(str(tmp_path / "empty"), "--exit", status=1)
        assert "holds no text files" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert demo.processes() == {}

    def test_no_such_folder_is_a_wrong_command_line(self, demo: Demo) -> None:
        """A folder that does not exist is told before anything starts."""
        assert len(demo.run("/nonexistent", "--exit", status=2).stderr.splitlines()) == 1

    @pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"])
    def test_a_port_of_somebody_else_is_told(self, demo: Demo, says: bytes) -> None:
        """Whatever else has the port, the demo names the port and the way out."""
        with _talking(demo.port, says):
            assert f"port {demo.port} is in use" in demo.run("--exit", status=1).stderr

    def test_a_given_server_has_to_be_there(self, demo: Demo) -> None:
        """``--server`` never starts one."""
        assert "no server answers" in demo.run("--server", demo.url, status=3).stderr

    def test_a_worker_that_fails_is_told(self, demo: Demo, small: Path) -> None:
        """What a worker was refused is the demo's complaint, and the run has failed of it."""
        demo.env["STEPPLANE_MAX_OUTPUT_BYTES"] = "1024"
        for number in range(40):
            (small / f"{number}.txt").write_text("more files than so small a limit lets through")
        done = demo.run(str(small), "--exit", status=1)
        assert done.stderr.startswith("stepplane: the worker of scan failed: the body is ")
        assert len(done.stderr.splitlines()) == 1
        with demo.serving():
            run = _get(f"{demo.url}/v1/runs/{_ids(done.stdout)[1]}").json()
        assert (run["status"], "the worker of scan failed" in run["error"]) == ("failed", True)

    def test_a_server_that_cannot_start_says_why(self, demo: Demo) -> None:
        """The started server's own complaint is the demo's."""
        demo.env["STEPPLANE_DATABASE_URL"] = "sqlite:////proc/none/at/all.db"
        done = demo.run("--exit", status=1)
        assert done.stderr.startswith("stepplane: the server did not start: ")
        assert len(done.stderr.splitlines()) == 1


@contextlib.contextmanager
def _talking(port: int, says: bytes) -> Iterator[None]:
    """Answer everybody on a port with the same bytes, from a process of its own."""
    program = (
        "import socket, sys\n"
        f"server = socket.create_server(('127.0.0.1', {port}))\n"
        "print('up', flush=True)\n"
        "while True:\n"
        "    connection, _ = server.accept()\n"
        f"    connection.sendall({says!r})\n"
        "    connection.close()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()
