"""The documentation, done as it says: every console and Python block of README.md and docs/ against a real server."""

from pathlib import Path

import httpx
import pytest
import yaml
from jsonschema_rs import Draft202012Validator

from app.domain.blueprint import parse_blueprint
from app.domain.blueprint_schema import blueprint_schema
from tests.e2e.conftest import Server
from tests.e2e.doc_blocks import Block, blocks_of, commands_of, comparable, run_python, run_session

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCKS = {page: blocks_of(ROOT / page, page) for page in PAGES}

NOT_RUN = {
    "$ git clone": "it fetches the project itself, and `make` runs these very tests; tests/e2e/test_lock.py installs",
    "stepplane demo:": "what `make run` prints; tests/e2e/test_demo.py runs it",
    "$ export STEPPLANE_OPERATOR_TOKEN=": "it needs Docker; tests/unit/test_house.py holds the image to the command",
}
"""What the blocks that are not run begin with, and why they are not."""

sqlite_only = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


def _is_run(block: Block) -> bool:
    return not any(block.text.startswith(beginning) for beginning in NOT_RUN)


@sqlite_only
@pytest.mark.parametrize("page", [page for page in PAGES if any(map(_is_run, BLOCKS[page]))])
def test_the_consoles_show_what_happens(server: Server, page: str, tmp_path: Path) -> None:
    """Each command of a page, run in the page's order in one shell, prints what the page shows, but for what varies."""
    blocks = [block for block in BLOCKS[page] if _is_run(block)]
    for block in blocks:
        if block.name is not None:
            (tmp_path / block.name).write_text(block.text, encoding="utf-8")
    commands = [command for block in blocks if block.language == "console" for command in commands_of(block)]
    printed = comparable(run_session(commands, server.url, tmp_path, server.database_url))
    shown = comparable([command.shown for command in commands])
    for command, told, expected in zip(commands, printed, shown, strict=True):
        assert told == expected, f"{page}:{command.line}: {command.text}"


@sqlite_only
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{block.page}-{number}")
        for blocks in BLOCKS.values()
        for number, block in enumerate(blocks)
        if block.language == "python" and _is_run(block)
    ],
)
def test_the_python_examples_run(server: Server, block: Block, tmp_path: Path) -> None:
    """Each Python block is a whole program, which succeeds as it stands and leaves no run unfinished."""
    done = run_python(block, server.url, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    runs = httpx.get(f"{server.url}/v1/runs", trust_env=False).json()["runs"]
    assert {run["status"] for run in runs} <= {"done"}


def test_only_what_cannot_be_run_is_left_out() -> None:
    """Each exception is of a block that is there, and no console block without a command is taken for run."""
    blocks = [block for page in BLOCKS.values() for block in page]
    for beginning in NOT_RUN:
        assert [block.page for block in blocks if block.text.startswith(beginning)] == ["README.md"], beginning
    consoles = [block for block in blocks if block.language == "console" and _is_run(block)]
    assert [(block.page, block.line) for block in consoles if not block.text.startswith("$ ")] == []
    assert len(consoles) > len(NOT_RUN)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{block.page}-{block.line}")
        for blocks in BLOCKS.values()
        for block in blocks
        if block.language == "yaml" and "flow:" in block.text
    ],
)
def test_the_blueprints_are_good(block: Block) -> None:
    """Each Blueprint of the documentation is taken by the parser and by the schema."""
    document = yaml.safe_load(block.text)
    parse_blueprint(document)
    assert Draft202012Validator(blueprint_schema()).is_valid(document)
