"""The command line as a shell sees it: its bytes, its lines and its exit status, against a real server."""

import io
import json
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.cli import main
from app.cli.output import printable
from tests.e2e.conftest import Server

TIMEOUT_SECONDS = 30
COMMAND = [sys.executable, "-m", "app"]


class Done(NamedTuple):
    """What a command left: its exit status and its bytes."""

    status: int
    stdout: bytes
    stderr: bytes


class Shell:
    """Runs ``stepplane`` commands against one server: in this process, since that is fast, or in one of their own."""

    def __init__(
        self, server_url: str, home: Path, capture: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch
    ) -> None:
        self.url = server_url
        self._capture = capture
        self._patch = patch
        self._own = {"STEPPLANE_SERVER": server_url, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
        self.env = {**os.environ, **self._own}

    def __call__(
        self, *arguments: str, status: int = 0, given: bytes = b"", env: Mapping[str, str] | None = None
    ) -> Done:
        self._capture.readouterr()
        with self._patch.context() as patch:
            for name, value in {**self._own, **(env or {})}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
            with pytest.raises(SystemExit) as ended:
                main(arguments)
        code = ended.value.code
        assert isinstance(code, int)
        return self._checked(arguments, status, Done(code, *self._capture.readouterr()))

    def process(self, *arguments: str, status: int = 0) -> Done:
        """Run a command as a process of its own."""
        done = subprocess.run(
            [*COMMAND, *arguments], env=self.env, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
        return self._checked(arguments, status, Done(done.returncode, done.stdout, done.stderr))

    def json(self, *arguments: str, **options: Any) -> Any:
        """Run a command with ``--json``: its standard output is one line of it."""
        lines = self(*arguments, "--json", **options).stdout.splitlines()
        assert len(lines) == 1
        return json.loads(lines[0])

    def complaint(self, *arguments: str, status: int, env: Mapping[str, str] | None = None) -> str:
        """Run a command that goes wrong: it says so in one line, and nothing else."""
        done = self(*arguments, status=status, env=env)
        assert done.stdout == b""
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith("stepplane: ")
        return line

    @staticmethod
    def _checked(arguments: tuple[str, ...], status: int, done: Done) -> Done:
        assert done.status == status, (arguments, done)
        assert b"Traceback" not in done.stderr
        return done


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all: each test has tasks of its own, and starting a server takes longer than the test."""
    home = tmp_path_factory.mktemp("server")
    running = Server(f"sqlite:///{home / 'stepplane.db'}", home / "server.log")
    yield running
    running.stop()


@pytest.fixture
def shell(
    server: Server, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    return Shell(server.url, tmp_path, capfdbinary, monkeypatch)


@pytest.fixture
def offline(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell whose server is not there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Shell(f"http://127.0.0.1:{probe.getsockname()[1]}", tmp_path, capfdbinary, monkeypatch)


def _task(shell: Shell, goal: str = "to be seen") -> tuple[str, str]:
    """Create a task by HTTP, since a process for each takes its time; return its id and its run's."""
    created = _post(f"{shell.url}/v1/tasks", json={"goal": goal})
    return created["task_id"], created["run_id"]


def _put_out(shell: Shell, run_id: str, ref: str, body: bytes, verdict: str = "pass", **more: str) -> str:
    """Let a step put something out, by HTTP; return its id."""
    document = {"ref": ref, "directive": "do it", **more}
    dispatched = _post(f"{shell.url}/v1/runs/{run_id}/steps", json=document)
    bearer = {"Authorization": f"Bearer {dispatched['worker_handle']}"}
    _post(f"{shell.url}/v1/worker/submit?verdict={verdict}", content=body, headers=bearer)
    step_id: str = dispatched["step_id"]
    return step_id


def _post(url: str, **request: Any) -> Any:
    with httpx.Client(trust_env=False) as http:
        answer = http.post(url, **request)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


class TestReading:
    def test_a_run_is_read_as_tables(self, shell: Shell) -> None:
        """In a pipe every table is plain text, and holds each id whole."""
        task_id, run_id = _task(shell)
        step_id = _put_out(shell, run_id, "plan", b'{"a": 1}')
        for arguments, expected in (
            (("tasks",), (task_id, run_id, "to be seen")),
            (("runs", task_id), (run_id, "running")),
            (("steps", task_id), ("plan", "1 of 1", "data_plane")),
            (("step", task_id, "plan"), (step_id, "sha256", '"a": 1')),
            (("outline", task_id, "plan"), ("$.a", "number")),
            (("outline", task_id, "plan", "--path", "$.a"), ("Nothing is inside $.a", "number of 1 bytes")),
            (("task", "show", task_id), (run_id, "to be seen")),
            (("run", "show", run_id), (step_id, "passed")),
        ):
            text = shell(*arguments).stdout.decode()
            assert [word for word in expected if word not in text] == []
            assert "\x1b" not in text

    def test_a_run_shows_what_its_steps_are_doing(self, shell: Shell) -> None:
        """``run show`` tells of each dispatch its newest stage, note and time, and ``-`` where it said nothing."""
        _, run_id = _task(shell)
        steps = [shell.json("dispatch", run_id, ref, "go") for ref in ("busy", "silent")]
        event = {"type": "progress", "stage": "reading", "note": "3 of 9"}
        document = {"task_id": steps[0]["step_id"], "attempt": 1, "producer_agent": "busy", "event": event}
        headers = {"Authorization": f"Bearer {steps[0]['worker_handle']}"}
        httpx.post(f"{shell.url}/v1/data/emit", json=document, headers=headers, trust_env=False).raise_for_status()
        *_, busy, silent = shell("run", "show", run_id).stdout.decode().splitlines()
        at = httpx.get(f"{shell.url}/v1/runs/{run_id}/steps", trust_env=False).json()["steps"][0]["progress"]["at"]
        assert busy.endswith(f"reading: 3 of 9 ({at})")
        assert silent.endswith(" -")

    def test_json_is_the_servers(self, shell: Shell) -> None:
        """``--json`` prints what the server answered, on one line."""
        task_id, run_id = _task(shell)
        _put_out(shell, run_id, "plan", b"text")
        plane = f"{shell.url}/v1/tasks/{task_id}"
        for arguments, url in (
            (("tasks",), f"{shell.url}/v1/tasks"),
            (("runs",), f"{shell.url}/v1/runs"),
            (("steps", task_id, run_id), f"{plane}/runs/{run_id}/steps"),
            (("step", task_id, "plan"), f"{plane}/runs/latest/steps/plan"),
            (("outline", task_id, "plan", "--limit", "5"), f"{plane}/runs/latest/steps/plan/outline?limit=5"),
            (("task", "show", task_id), plane),
            (("run", "show", run_id), f"{shell.url}/v1/runs/{run_id}"),
        ):
            assert shell.json(*arguments) == httpx.get(url, trust_env=False).json()

    def test_content_is_exactly_the_bytes(self, shell: Shell) -> None:
        """``content`` writes what the server serves, not a byte more."""
        task_id, run_id = _task(shell)
        text = "no newline at the end; é, 計画, \x00, \r\n, and spaces inside".encode()
        _put_out(shell, run_id, "a/b c", text)
        _put_out(shell, run_id, "list", b'[{"x": [10, 20]}]')
        assert shell.process("content", task_id, "a/b c", "--format", "raw").stdout == text
        assert shell("content", task_id, "list", "--path", "$[0].x[1]").stdout == b"20"
        served = httpx.get(f"{shell.url}/v1/tasks/{task_id}/runs/latest/steps/list/content", trust_env=False)
        assert shell("content", task_id, "list", "--run", run_id).stdout == served.content

    def test_a_text_is_written_as_itself(self, shell: Shell, tmp_path: Path) -> None:
        """Without ``--format`` a text comes as its own bytes, though its file is a JSON string in a fence."""
        document = json.dumps({"goal": "g", "work_dir": str(tmp_path)}).encode()
        created = shell.json("task", "create", "-", given=document)
        task_id, run_id = created["task_id"], created["run_id"]
        text = '# Title\n\nsaid "so"'
        _put_out(shell, run_id, "prose", text.encode())
        _put_out(shell, run_id, "data", b'{"a": "b"}')
        assert shell("content", task_id, "prose").stdout == text.encode()
        assert shell("content", task_id, "data", "--path", "$.a").stdout == b"b"
        assert shell("content", task_id, "data", "--path", "$.a", "--format", "json").stdout == b'"b"'
        assert shell("content", task_id, "prose", "--format", "json").stdout == json.dumps(text).encode()
        files = {name: shell("content", task_id, name, "--format", "file").stdout for name in ("prose", "data")}
        assert files["prose"].startswith(b"---\n")
        assert json.dumps(text).encode() in files["prose"]
        assert shell("content", task_id, "data").stdout == files["data"]

    def test_attempts_and_occurrences_are_addressed(self, shell: Shell) -> None:
        """``--attempt`` and ``--occurrence`` reach the older outputs."""
        task_id, run_id = _task(shell)
        first = _put_out(shell, run_id, "s", b"1", verdict="blocked")
        again = shell.json("dispatch", run_id, "s", "again", "--retry-of", first)
        shell("submit", "-", given=b"2", env={"STEPPLANE_WORKER_HANDLE": again["worker_handle"]})
        _put_out(shell, run_id, "s", b"3")
        assert shell("content", task_id, "s", "--format", "raw").stdout == b"3"
        assert shell("content", task_id, "s", "--occurrence", "1", "--format", "raw").stdout == b"2"
        old = ("--occurrence", "1", "--attempt", "1", "--format", "raw")
        assert shell("content", task_id, "s", *old).stdout == b"1"
        assert shell.json("step", task_id, "s", *old)["ok"] is False

    def test_a_reader_that_stops_early_is_no_error_message(self, shell: Shell) -> None:
        """``stepplane content … | head -c 1`` ends quietly."""
        task_id, run_id = _task(shell)
        _put_out(shell, run_id, "big", b"x" * 1_000_000)
        command = [*COMMAND, "content", task_id, "big"]
        with subprocess.Popen(command, env=shell.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.read(1)
            process.stdout.close()
            process.wait(TIMEOUT_SECONDS)
            assert process.stderr is not None
            assert process.stderr.read() == b""

    def test_a_full_disk_is_one_line(self, shell: Shell) -> None:
        """Output that cannot be written is told, and told once."""
        task_id, run_id = _task(shell)
        _put_out(shell, run_id, "s", b"1")
        with Path("/dev/full").open("wb") as full:
            for arguments in (("tasks",), ("content", task_id, "s")):
                command = [*COMMAND, *arguments]
                done = subprocess.run(
                    command, env=shell.env, stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS, check=False
                )
                assert (done.returncode, done.stderr) == (1, b"stepplane: No space left on device\n")

    def test_control_characters_never_reach_the_terminal(self, shell: Shell) -> None:
        """A name or an output that would command a terminal is shown as escapes."""
        task_id, run_id = _task(shell, "\x1b[2J")
        _put_out(shell, run_id, "\x1b[31mred", b"\x1b]0;title\x07")
        for arguments in (("tasks",), ("steps", task_id), ("step", task_id, "\x1b[31mred"), ("run", "show", run_id)):
            text = shell(*arguments).stdout.decode()
            assert "\x1b" not in text
            assert "\\x1b" in text or "\\u001b" in text

    def test_a_terminal_gets_a_table(self, shell: Shell) -> None:
        """On a terminal the table has rules, and ids are whole still."""
        task_id, run_id = _task(shell, "[red]not markup")
        leader, follower = pty.openpty()
        try:
            env = {**shell.env, "COLUMNS": "200", "TERM": "xterm"}
            subprocess.run([*COMMAND, "tasks"], env=env, stdout=follower, timeout=TIMEOUT_SECONDS, check=True)
            text = os.read(leader, 100_000).decode()
        finally:
            os.close(leader)
            os.close(follower)
        assert [word for word in (task_id, run_id, "[red]not markup", "─") if word not in text] == []

    def test_an_empty_list_is_said_in_words(self, shell: Shell) -> None:
        """A table without rows is a sentence."""
        task_id, run_id = _task(shell)
        assert shell("runs", task_id, "--status", "failed").stdout == b"There are no such runs.\n"
        assert f"stepplane run show {run_id}".encode() in shell("steps", task_id).stdout
        assert b"Nothing was dispatched" in shell("run", "show", run_id).stdout
        assert b"no Blueprint" in shell("task", "create", "-", given=b"goal: none").stdout

    def test_pages_go_on(self, shell: Shell) -> None:
        """A page that is not the last says how to get the next, beside the table."""
        made = [_task(shell)[0] for _ in range(3)]
        first = shell("tasks", "--limit", "2")
        hint = first.stderr.decode().strip()
        assert made[0] not in first.stdout.decode()
        cursor = hint.rpartition("--cursor ")[2]
        assert made[0] in shell("tasks", "--limit", "2", "--cursor", cursor).stdout.decode()


class TestWriting:
    def test_a_pipeline_can_be_driven_from_a_shell(self, shell: Shell, tmp_path: Path) -> None:
        """Create, dispatch, submit, finish: with a Blueprint in a file, and a handle that is never printed."""
        file, handle = tmp_path / "task.yaml", tmp_path / "handle"
        file.write_text(
            "goal: drive\n"
            "blueprint:\n"
            "  id: b\n"
            "  flow: {kind: step, ref: plan, in: {op: path, at: $.in}, out: {op: path, at: $.draft}}\n"
            "start: false\n"
        )
        created = shell.json("task", "create", str(file))
        assert created["steps"] == [{"step_ref": "plan", "name": "plan", "aliases": ["draft", "plan"]}]
        assert "draft" in shell("task", "create", str(file)).stdout.decode()
        run_id = shell("run", "start", created["task_id"]).stdout.decode().strip()
        shown = shell("dispatch", run_id, "plan", '{"n": 1}', "--directive-json", "--handle-out", str(handle)).stdout
        secret = handle.read_text().strip()
        assert secret.startswith("wh-")
        assert secret.encode() not in shown
        assert stat.S_IMODE(handle.stat().st_mode) == 0o600
        body = tmp_path / "body"
        body.write_bytes(b'{"done": true}')
        shell("submit", str(body), "--part", "notes.md", "--handle-file", str(handle))
        shell("submit", str(body), "--verdict", "pass", "--handle-file", str(handle))
        assert "done" in shell("finish", run_id, "--result", '{"draft": 1}').stdout.decode()
        assert shell("content", created["task_id"], "draft", "--path", "$.done").stdout == b"true"
        assert shell("content", created["task_id"], "notes.md").stdout == body.read_bytes()
        shell("run", "delete", run_id)
        assert run_id in shell.complaint("run", "show", run_id, status=1)

    def test_a_failed_run_says_why(self, shell: Shell) -> None:
        """``finish`` takes a status and an error; a second outcome is refused."""
        _, run_id = _task(shell)
        assert shell.json("finish", run_id, "failed", "--error", "out of luck")["error"] == "out of luck"
        assert "already" in shell.complaint("finish", run_id, "done", status=1)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("dispatch", "R-1", "s", "{", "--directive-json"),
            ("dispatch", "R-1", "s", "d", "--ctx", "{"),
            ("finish", "R-1", "--result", "nope"),
            ("finish", "R-1", "finished"),
            ("submit", "-"),
            ("submit", "-", "--handle-file", "/nonexistent/handle"),
            ("task", "create", "/nonexistent/file"),
            ("step", "T-1"),
            ("steps", "T-1", "--server", "no url"),
            ("run",),
            ("nonsense",),
        ],
    )
    def test_a_wrong_command_line_is_one_line(self, offline: Shell, arguments: tuple[str, ...]) -> None:
        """What cannot be meant is told before any server is asked."""
        offline.complaint(*arguments, status=2)

    def test_a_handle_that_cannot_be_kept_is_shown(self, shell: Shell, tmp_path: Path) -> None:
        """A handle is told once: where the file cannot be written, it is printed rather than lost."""
        _, run_id = _task(shell)
        done = shell("dispatch", run_id, "s", "d", "--handle-out", str(tmp_path / "no" / "file"), status=2)
        assert done.stdout.decode().startswith("STEPPLANE_WORKER_HANDLE=wh-")


class TestFailing:
    def test_no_server_is_status_three(self, offline: Shell) -> None:
        """An address where nothing answers is told with what to do about it."""
        assert f"no server answers at {offline.url}" in offline.complaint("tasks", status=3)

    def test_an_unknown_task_is_status_one(self, shell: Shell) -> None:
        """The server's own sentence is the complaint."""
        assert "T-none" in shell.complaint("steps", "T-none", status=1)
        assert "T-none" in shell.complaint("content", "T-none", "s", status=1)

    def test_a_secret_is_never_echoed(self, shell: Shell, tmp_path: Path) -> None:
        """Neither a token nor a handle shows in what a command prints, right or wrong."""
        secret = "s3cret-t0ken"
        token_file = tmp_path / "token"
        token_file.write_text(secret + "\n")
        env = {"STEPPLANE_OPERATOR_TOKEN": secret, "STEPPLANE_WORKER_HANDLE": secret}
        wrong = shell("tasks", status=1, env=env)
        runs = [
            wrong,
            shell("tasks", "--token-file", str(token_file), status=1),
            shell("steps", "T-none", status=1, env=env),
            shell("submit", "-", status=1, env=env),
            shell("tasks", status=2, env={"STEPPLANE_OPERATOR_TOKEN": "two words " + secret}),
        ]
        token_file.write_bytes(b"\xff" + secret.encode())
        runs.append(shell("tasks", "--token-file", str(token_file), status=2))
        assert b"STEPPLANE_OPERATOR_TOKEN" in wrong.stderr
        assert all(secret.encode() not in done.stdout + done.stderr for done in runs)

    def test_ctrl_c_is_quiet(self, offline: Shell) -> None:
        """Ctrl-C while a server does not answer ends with 130 and not a word."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            command = [*COMMAND, "tasks", "--server", f"http://127.0.0.1:{silent.getsockname()[1]}"]
            with subprocess.Popen(command, env=offline.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                silent.settimeout(TIMEOUT_SECONDS)
                connection, _ = silent.accept()
                with connection:
                    process.send_signal(signal.SIGINT)
                    said = process.communicate(timeout=TIMEOUT_SECONDS)
        assert (process.returncode, *said) == (130, b"", b"")

    def test_help_without_a_command(self, offline: Shell) -> None:
        """``stepplane`` alone shows its commands; ``--version`` its version."""
        text = offline(status=2).stdout.decode()
        assert [word for word in ("serve", "demo", "migrate", "content") if word not in text] == []
        assert offline("--version").stdout.startswith(b"stepplane ")


class TestServing:
    @pytest.fixture
    def database_url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'own.db'}"

    def test_migrate_says_what_it_did(self, offline: Shell, database_url: str) -> None:
        """``migrate`` can be run again, and says so in a line each time."""
        for _ in range(2):
            assert len(offline("migrate", "--database-url", database_url).stdout.splitlines()) == 1

    def test_a_database_that_cannot_be_opened_is_one_line(self, offline: Shell) -> None:
        """Neither ``serve`` nor ``migrate`` dies of a bad database with a traceback."""
        for command in ("serve", "migrate"):
            done = offline.process(command, "--database-url", "sqlite:////proc/none/at/all.db", status=1)
            assert len(done.stderr.splitlines()) == 1

    def test_a_port_in_use_is_one_line(self, server: Server, offline: Shell, database_url: str) -> None:
        """A second server on one port says so."""
        port = str(httpx.URL(server.url).port)
        done = offline.process("serve", "--port", port, "--database-url", database_url, status=1)
        assert port in done.stderr.decode().splitlines()[-1]

    def test_an_open_address_needs_a_token(self, offline: Shell, database_url: str) -> None:
        """Without a token and without ``--insecure`` only loopback is served."""
        done = offline.process("serve", "--host", "0.0.0.0", "--port", "0", "--database-url", database_url, status=1)
        assert "insecure" in done.stderr.decode().splitlines()[-1]

    @pytest.mark.parametrize(
        ("arguments", "env", "named"),
        [
            (("--port", "70000"), {}, "--port"),
            (("--projection-root", "relative"), {}, "projection_roots"),
            ((), {"STEPPLANE_PORT": "many"}, "STEPPLANE_PORT"),
            ((), {"STEPPLANE_PROJECTION_ROOTS": "no list"}, "STEPPLANE_PROJECTION_ROOTS"),
            ((), {"STEPPLANE_OPERATOR_TOKEN": "se cret"}, "STEPPLANE_OPERATOR_TOKEN"),
            (("--log-level", "loud"), {"STEPPLANE_LOG_LEVEL": "info"}, "--log-level"),
        ],
    )
    def test_a_wrong_setting_is_named(
        self, offline: Shell, arguments: tuple[str, ...], env: dict[str, str], named: str
    ) -> None:
        """A setting that cannot be is named as it was given, and its value is not repeated."""
        line = offline.complaint("serve", *arguments, status=2, env=env)
        assert named in line
        assert "se cret" not in line

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_server_stops_cleanly(self, offline: Shell, database_url: str, number: signal.Signals) -> None:
        """SIGTERM and Ctrl-C end a server at once, without a traceback."""
        command = [*COMMAND, "serve", "--port", str(httpx.URL(offline.url).port), "--database-url", database_url]
        with _running(command, offline.env) as process:
            _wait_until_healthy(offline.url)
            process.send_signal(number)
            _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        assert b"Traceback" not in errors
        assert process.returncode in {0, -number, 128 + number}


class _running:  # noqa: N801  # a context manager, used as one
    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def _wait_until_healthy(url: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/v1/healthz", trust_env=False).text == "ok":
                return
        except httpx.HTTPError:
            time.sleep(0.05)
    pytest.fail("the server did not answer in time")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 計", "plain é 計"),
        ("\x1b[m", "\\x1b[m"),
        ("\u202e", "\\u202e"),
        ("\udc80", "\\udc80"),
        ("a\u200bb\u3164", "a\\u200bb\\u3164"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    """Only what can be seen is printed as it is."""
    assert printable(text) == shown
