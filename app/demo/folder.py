"""What a folder holds: the text files in it, their languages and sizes.

The invariant: a scan is bounded, in files and in bytes, and says what it left out.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_FILES = 2_000
MAX_FILE_BYTES = 512 * 1024
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "target", "build", "dist"})  # and hidden ones
_PROBE_BYTES = 8 * 1024

_BY_SUFFIX = {
    ".c": "C",
    ".cc": "C++",
    ".cpp": "C++",
    ".css": "CSS",
    ".go": "Go",
    ".h": "C",
    ".hpp": "C++",
    ".htm": "HTML",
    ".html": "HTML",
    ".ini": "INI",
    ".java": "Java",
    ".js": "JavaScript",
    ".json": "JSON",
    ".jsx": "JavaScript",
    ".lua": "Lua",
    ".md": "Markdown",
    ".mjs": "JavaScript",
    ".py": "Python",
    ".rb": "Ruby",
    ".rs": "Rust",
    ".rst": "reStructuredText",
    ".sh": "Shell",
    ".sql": "SQL",
    ".toml": "TOML",
    ".ts": "TypeScript",
    ".tsx": "TypeScript",
    ".txt": "Text",
    ".yaml": "YAML",
    ".yml": "YAML",
}
_BY_NAME = {"Dockerfile": "Dockerfile", "Makefile": "Makefile"}


def scan_folder(folder: Path) -> dict[str, Any]:
    """List the text files under a folder with their languages and sizes, and count what was left out.

    Links are not followed; hidden folders and those of tools are not entered. Paths are relative, with ``/``.
    """
    files: list[dict[str, Any]] = []
    skipped: Counter[str] = Counter()
    for path in _walk(folder):
        if len(files) == MAX_FILES:
            skipped["over the limit of files"] += 1
            continue
        reason, size_bytes = _look(path)
        if reason:
            skipped[reason] += 1
        else:
            relative = path.relative_to(folder).as_posix()
            files.append({"path": relative, "language": language_of(path), "size_bytes": size_bytes})
    return {
        "folder": str(folder),
        "files": files,
        "languages": _languages(files),
        "skipped": dict(sorted(skipped.items())),
    }


def language_of(path: Path) -> str:
    """Name the language of a file by its name."""
    return _BY_NAME.get(path.name) or _BY_SUFFIX.get(path.suffix.lower(), "Other")


def read_text(folder: Path, relative: str) -> str:
    """Read a file of the scan again; empty when it has gone or is no text any more."""
    try:
        return (folder / relative).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            yield Path(parent) / name


def _look(path: Path) -> tuple[str, int]:
    """Return why a file is left out, or nothing and its size in bytes."""
    try:
        if path.is_symlink() or not path.is_file():
            return "links and special files", 0
        size_bytes = path.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            return f"over {MAX_FILE_BYTES} bytes", 0
        body = path.read_bytes()
        if b"\0" in body[:_PROBE_BYTES]:
            return "binary", 0
        body.decode("utf-8")
    except UnicodeDecodeError:
        return "binary", 0
    except OSError:
        return "unreadable", 0
    return "", size_bytes


def _languages(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum up by language, the largest first."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for entry in files:
        counts[entry["language"]] += 1
        sizes[entry["language"]] += entry["size_bytes"]
    order = sorted(sizes, key=lambda language: (-sizes[language], language))
    return [{"language": name, "files": counts[name], "size_bytes": sizes[name]} for name in order]
