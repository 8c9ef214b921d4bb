"""The documentation says what the code does: settings, errors, links."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api.errors import status_of
from app.config import Settings
from app.domain.errors import StepplaneError
from app.domain.limits import limits_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _kinds(root: type[StepplaneError]) -> Iterator[type[StepplaneError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


def test_the_settings_table_is_the_settings() -> None:
    """README's table has a row for every setting, with its default and its description, and no other row."""
    rows = dict(re.findall(r"^\| `STEPPLANE_(\w+)` \| (.*) \|$", README, flags=re.MULTILINE))
    assert set(rows) == {name.upper() for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        default, description = rows[name.upper()].split(" | ", 1)
        assert description == field.description
        if field.default is None:
            assert default == "unset"
        elif name != "database_url":
            assert default.strip("`") == str(field.default).lower()


def test_every_error_code_is_documented() -> None:
    """docs/errors.md lists each status and code that can be answered, and no other."""
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    documented = {
        (int(status), code) for status, code in re.findall(r"^\| (\d{3}) \| `(\w+)` \|", text, flags=re.MULTILINE)
    }
    shipped = [kind for kind in _kinds(StepplaneError) if kind.__module__.startswith("app.")]
    assert documented == {(status_of(kind), kind.code) for kind in shipped}


def test_the_limits_table_is_the_limits() -> None:
    """docs/limits.md shows every row of the code's table, with its value."""
    assert limits_table() in (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")


_PROSE = sorted(str(page.relative_to(ROOT)) for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))


@pytest.mark.parametrize("page", _PROSE)
def test_links_lead_somewhere(page: str) -> None:
    """A relative link in a page leads to a file of the project."""
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target]
    assert [target for target in targets if target and not (ROOT / target).exists()] == []
