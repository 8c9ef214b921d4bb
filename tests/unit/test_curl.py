"""Curl lines: a shell that is given one runs curl with exactly the words that are meant, and nothing else."""

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.rendering import Narrowing, content_path
from app.web.curl import curl_line

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
paths = st.none() | st.text(st.sampled_from("$.[]\"'`\\!;&|<>() \n~a*{}#"), max_size=15)


def words_of(line: str) -> list[str]:
    """Have a shell read the line, with a function in the place of curl that prints the words it is given."""
    script = f'curl() {{ printf "%s\\0" "$@"; }}\n{line}\n'
    environment = {"STEPPLANE_SERVER": "https://host", "STEPPLANE_OPERATOR_TOKEN": "se cret"}
    ran = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, check=True)
    return ran.stdout.decode().split("\0")[:-1]


@settings(max_examples=40, deadline=None)
@given(names, paths)
def test_a_shell_reads_what_is_meant(name: str, path: str | None) -> None:
    """Whatever name and path, the shell passes one URL on, and the secret comes from its variable."""
    url = content_path("T-1", "R-1", name, Narrowing(path))
    assert words_of(curl_line(url, needs_token=False)) == ["-s", f"https://host{url}"]
    told = curl_line(f"https://other/it's{url}", needs_token=True, etag='"sha256:0"')
    assert words_of(told) == [
        *("-i", "-H", "Authorization: Bearer se cret", "-H", 'If-None-Match: "sha256:0"', f"https://other/it's{url}"),
    ]
    assert "se cret" not in told
