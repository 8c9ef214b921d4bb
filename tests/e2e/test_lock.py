"""The lock: what an install takes from an index that has moved on since the lock was written."""

import base64
import functools
import hashlib
import io
import re
import subprocess
import sys
import threading
import venv
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

_INDEX: dict[str, dict[str, list[str]]] = {
    "runner": {"1.0": ["lib[fast]>=1.0"], "2.0": ["lib[fast]>=1.0"]},
    "lib": {"1.0": ['speedup>=1.0; extra == "fast"'], "1.1": ['speedup>=1.0; extra == "fast"']},
    "speedup": {"1.0": [], "3.0": []},
}
"""What is offered: name, versions, requirements. An extra of a pinned package is asked for, as pytest-cov does."""

_PINS = {"runner": "1.0", "lib": "1.0", "speedup": "1.0"}


def test_a_newer_release_of_a_pinned_package_changes_no_install(
    index: str, pip: list[str], lock: Path, tmp_path: Path
) -> None:
    """The Makefile's own words install what the lock pins, extras among it, whatever the index offers by now."""
    installed = _pip(pip, index, *_words_of_the_makefile(), "--requirement", str(lock), "--target", str(tmp_path / "t"))
    assert installed.returncode == 0, installed.stderr
    assert {path.name for path in (tmp_path / "t").glob("*.dist-info")} == {
        f"{name}-{version}.dist-info" for name, version in _PINS.items()
    }


def test_without_those_words_the_same_index_breaks_the_install(
    index: str, pip: list[str], lock: Path, tmp_path: Path
) -> None:
    """The index of these tests is one that does break an install that resolves."""
    words = [word for word in _words_of_the_makefile() if word != "--no-deps"]
    broken = _pip(pip, index, *words, "--requirement", str(lock), "--target", str(tmp_path / "t"))
    assert broken.returncode != 0
    assert "must have their versions pinned with ==" in broken.stderr


def test_what_a_lock_lacks_is_told(index: str, tmp_path: Path) -> None:
    """A lock that misses a requirement installs, and `pip check` after it says so and fails."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    lock = tmp_path / "short.txt"
    lock.write_text(_locked("runner"))
    installed = _pip([python, "-m", "pip"], index, *_words_of_the_makefile(), "--requirement", str(lock))
    assert installed.returncode == 0, installed.stderr
    checked = subprocess.run([python, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    assert "runner 1.0 requires lib, which is not installed" in checked.stdout


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """Serve a package index on loopback."""
    root = tmp_path / "simple"
    for name, releases in _INDEX.items():
        (root / name).mkdir(parents=True)
        for version, requirements in releases.items():
            (root / name / _file_name(name, version)).write_bytes(_wheel(name, version, requirements))
        links = (f'<a href="{path.name}">{path.name}</a>' for path in sorted((root / name).iterdir()))
        (root / name / "index.html").write_text("<!doctype html>" + "".join(links))
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Silent, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def pip() -> list[str]:
    return [sys.executable, "-m", "pip"]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock.txt"
    path.write_text("".join(map(_locked, _PINS)))
    return path


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _words_of_the_makefile() -> list[str]:
    found = re.search(r"^LOCKED := (.+)$", (_ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].split()


def _pip(pip: list[str], index: str, *words: str) -> subprocess.CompletedProcess[str]:
    # Isolated from the user's own settings, which may name other indexes or folders of wheels.
    command = [*pip, "install", "--isolated", "--no-cache-dir", "--disable-pip-version-check", "--index-url", index]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False, timeout=120)


def _locked(name: str) -> str:
    version = _PINS[name]
    digest = hashlib.sha256(_wheel(name, version, _INDEX[name][version])).hexdigest()
    return f"{name}=={version} --hash=sha256:{digest}\n"


def _file_name(name: str, version: str) -> str:
    return f"{name}-{version}-py3-none-any.whl"


def _wheel(name: str, version: str, requirements: list[str]) -> bytes:
    """Make the smallest wheel that pip installs: the same bytes each time."""
    meta = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requirements)
    if name == "lib":
        metadata += "Provides-Extra: fast\n"
    files = {
        f"{name}.py": "",
        f"{meta}/METADATA": metadata,
        f"{meta}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_record_digest(text)},{len(text)}\n" for path, text in files.items())
    files[f"{meta}/RECORD"] = f"{record}{meta}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return packed.getvalue()


def _record_digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
