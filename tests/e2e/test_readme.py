"""What README.md shows, done as it says."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Server

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_the_python_client_does_what_the_readme_shows(server: Server) -> None:
    """The example runs as it stands, against a server at that address."""
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    example = example.replace("http://127.0.0.1:7777", server.url)
    source = "async def main():\n" + textwrap.indent(example, "    ") + "\n    return prompt, plan\n"
    names: dict[str, Any] = {}
    exec(source, names)  # noqa: S102 - our own README
    prompt, plan = await names["main"]()
    assert prompt["prompt"] == "Plan it."
    assert plan.body == b'{\n  "plan": [\n    "dig"\n  ]\n}'
