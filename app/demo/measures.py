"""What is measured in a folder's files: lines per language, and the longest functions.

The invariant: a file that cannot be understood is named, never guessed at silently.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.demo.folder import read_text

LONGEST = 15
_HASH_COMMENTS = frozenset({"Dockerfile", "INI", "Makefile", "Python", "Ruby", "Shell", "TOML", "YAML"})
_SLASH_COMMENTS = frozenset({"C", "C++", "Go", "Java", "JavaScript", "Rust", "TypeScript"})


def measure_language(folder: Path, inventory: dict[str, Any], language: str) -> dict[str, Any]:
    """Count the lines of one language: all, blank, comments and code, and its three longest files."""
    marks = ("#",) if language in _HASH_COMMENTS else ("//", "/*", "*") if language in _SLASH_COMMENTS else ()
    blank = comments = 0
    lengths: list[dict[str, Any]] = []
    for entry in _files_of(inventory, language):
        lines = [line.strip() for line in read_text(folder, entry["path"]).splitlines()]
        blank += lines.count("")
        comments += sum(line.startswith(marks) for line in lines) if marks else 0
        lengths.append({"path": entry["path"], "lines": len(lines)})
    total = sum(entry["lines"] for entry in lengths)
    return {
        "language": language,
        "files": len(lengths),
        "lines": total,
        "code_lines": total - blank - comments,
        "comment_lines": comments,
        "blank_lines": blank,
        "longest_files": sorted(lengths, key=lambda entry: (-entry["lines"], entry["path"]))[:3],
    }


def longest_functions(folder: Path, inventory: dict[str, Any]) -> dict[str, Any]:
    """Find the longest functions: Python's by its syntax tree, those of brace languages by counting braces."""
    found: list[dict[str, Any]] = []
    not_understood: list[str] = []
    for entry in inventory["files"]:
        path, language = entry["path"], entry["language"]
        text = read_text(folder, path) if language == "Python" or language in _SLASH_COMMENTS else ""
        try:
            functions = _python_functions(text) if language == "Python" else _brace_functions(text)
            found += [
                {"name": name, "path": path, "line": line, "lines": lines, "language": language}
                for name, line, lines in functions
            ]
        except (SyntaxError, ValueError, RecursionError):
            not_understood.append(path)
    found.sort(key=lambda function: (-function["lines"], function["path"], function["line"]))
    return {"functions": found[:LONGEST], "functions_found": len(found), "not_understood": not_understood}


def _files_of(inventory: dict[str, Any], language: str) -> Iterator[dict[str, Any]]:
    return (entry for entry in inventory["files"] if entry["language"] == language)


def _python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bad escape in someone's string is not this program's warning
        tree = ast.parse(text)
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}.{child.name}".lstrip(".")
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, child.lineno, (child.end_lineno or child.lineno) - child.lineno + 1
            pending.append((name, child))


# A line that ends by opening a brace after a name and its parameters; not "if (…) {" and its like.
_HEAD = re.compile(r"\b([A-Za-z_][\w]*)\s*(?:<[^<>]*>)?\s*\([^;{}]*\)[^;{}()]*\{\s*$")
_HEAD_CHARS = 400  # a longer line is minified, and searching it slow
_MAX_FUNCTION_LINES = 3_000  # an unbalanced brace would otherwise be looked for to the end of every file
_NO_NAMES = frozenset({"if", "for", "while", "switch", "catch", "match", "return", "else", "with", "loop"})


def _brace_functions(text: str) -> Iterator[tuple[str, int, int]]:
    lines = text.splitlines()
    for index, line in enumerate(lines):
        head = _HEAD.search(line) if len(line) <= _HEAD_CHARS else None
        if head is None or head[1] in _NO_NAMES:
            continue
        depth = 0
        for end in range(index, min(len(lines), index + _MAX_FUNCTION_LINES)):
            depth += lines[end].count("{") - lines[end].count("}")
            if depth <= 0:
                yield head[1], index + 1, end - index + 1
                break
