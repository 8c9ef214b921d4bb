"""The house: what pyproject.toml, the lock, the image and the compose file say of each other is true."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main
import yaml
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import app
from app import cli
from app.config import Settings

ROOT = Path(__file__).parents[2]
PYPROJECT_TEXT = (ROOT / "pyproject.toml").read_text()
PROJECT: dict[str, Any] = tomllib.loads(PYPROJECT_TEXT)["project"]
LOCKS = ("constraints.txt", "constraints-runtime.txt")
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]

PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?P<marker> ; [^\\]+)? \\\n(?P<hashes>(?: +--hash=\S+.*\n)+)",
    re.MULTILINE,
)


def pins(lock: str) -> dict[str, tuple[str, list[str]]]:
    """Each pinned name of a lock file with its version and its hashes."""
    text = (ROOT / lock).read_text()
    return {
        canonicalize_name(pin["name"]): (pin["version"], re.findall(r"--hash=(\S+)", pin["hashes"]))
        for pin in PIN.finditer(text)
    }


def names(requirements: list[str]) -> set[str]:
    """The distribution names of requirement strings, without our own."""
    return {str(canonicalize_name(Requirement(each).name)) for each in requirements} - {"stepplane"}


RUNTIME = PROJECT["dependencies"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.mark.parametrize("requirement", [*RUNTIME, *EXTRAS["build"], *EXTRAS["dev"]])
def test_a_dependency_has_its_reason_beside_it(requirement: str) -> None:
    """Every dependency stands on a line of its own that says why it is there."""
    assert re.search(rf'^ +"{re.escape(requirement)}", +# \S.{{8,}}$', PYPROJECT_TEXT, re.MULTILINE)


def test_a_lint_ignore_has_its_reason_beside_it() -> None:
    """Every rule that ruff leaves out stands on a line of its own that says why."""
    ruff = tomllib.loads(PYPROJECT_TEXT)["tool"]["ruff"]["lint"]
    ignored = [*ruff["ignore"], *(rule for rules in ruff["per-file-ignores"].values() for rule in rules)]
    unreasoned = [rule for rule in ignored if not re.search(rf'^ +"{rule}", +# \S', PYPROJECT_TEXT, re.MULTILINE)]
    assert unreasoned == []


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("constraints.txt", [*RUNTIME, *EXTRAS["build"], *EXTRAS["dev"]]),
        ("constraints-runtime.txt", [*RUNTIME, *EXTRAS["build"]]),
    ],
)
def test_a_lock_pins_what_the_project_asks_for(lock: str, requirements: list[str]) -> None:
    """Every dependency is pinned, within its bounds, with the hashes of more files than one machine needs."""
    pinned = pins(lock)
    assert names(requirements) <= pinned.keys()
    for requirement in (Requirement(each) for each in requirements if not each.startswith("stepplane")):
        version, hashes = pinned[canonicalize_name(requirement.name)]
        assert version in requirement.specifier
        assert len(hashes) > 1
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_place_to_download_from(lock: str) -> None:
    """A lock holds names, versions and hashes only: where files come from is the installer's setting."""
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert not re.search(r"^ *(-i|-f|--(index|extra-index|find-links|trusted-host)\S*) ", text, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_no_line_without_a_hash(lock: str) -> None:
    """Every requirement of a lock is one that pip can check."""
    lines = [line for line in (ROOT / lock).read_text().splitlines() if line and not line.startswith((" ", "#"))]
    assert len(lines) == len(pins(lock))


def test_the_runtime_lock_is_a_part_of_the_whole_lock() -> None:
    """The image runs exactly the versions that the tests ran with."""
    whole, runtime = pins("constraints.txt"), pins("constraints-runtime.txt")
    assert {name: whole.get(name) for name in runtime} == runtime


def test_the_image_installs_no_development_tool() -> None:
    """What only tests and checks need stays out of the image."""
    runtime_names = pins("constraints-runtime.txt").keys()
    assert names(EXTRAS["dev"]) & runtime_names <= {"packaging"}  # hatchling builds with it


def test_the_version_is_the_one_of_the_metadata() -> None:
    """The package, its metadata and the compose file's image tag name one version."""
    assert app.__version__ == PROJECT["version"]
    assert SERVICES["server"]["image"] == f"stepplane:{app.__version__}"


def test_the_package_is_typed() -> None:
    """A type checker of another project reads our annotations."""
    assert (ROOT / "app" / "py.typed").exists()


def test_the_wheel_has_what_the_program_needs_and_no_more() -> None:
    """An installed program finds its migrations inside the package, and brings no other top-level package."""
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    source = {str(path.relative_to(ROOT)) for path in (ROOT / "app").rglob("*") if path.is_file()}
    migrations = {f"app/_{path.relative_to(ROOT)}" for path in (ROOT / "migrations").rglob("*") if path.is_file()}
    assert "app/_migrations/env.py" in packed
    assert packed == {path for path in source | migrations if "__pycache__" not in path}


def test_the_image_is_installed_as_the_makefile_installs() -> None:
    """Both take the lock as the whole resolution, by the same words, and check afterwards that nothing is missing."""
    makefile, dockerfile = ((ROOT / name).read_text() for name in ("Makefile", "Dockerfile"))
    words = re.findall(r"^LOCKED := (.+)$", makefile, re.MULTILINE)
    assert words == ["--no-deps --require-hashes"]
    assert "pip install $(PIP_QUIET) $(LOCKED) --requirement constraints.txt\n" in makefile
    assert f"pip install {words[0]} --requirement constraints-runtime.txt\n" in dockerfile
    assert makefile.count("-m pip check") == dockerfile.count("pip check") == 1


def dockerfile_command(instruction: str) -> list[str]:
    """The last exec-form command of an instruction, also where an option line stands before it."""
    text = (ROOT / "Dockerfile").read_text()
    *_, command = re.findall(rf"^{instruction}(?: .*\\\n +CMD)? (\[.*\])$", text, re.MULTILINE)
    argv: list[str] = json.loads(command)
    return argv


def test_the_image_starts_a_command_that_the_command_line_knows() -> None:
    """The image's command is our console script with a command and options that it takes, open to the network."""
    program, command, *options = dockerfile_command("CMD")
    assert PROJECT["scripts"] == {program: "app.cli:main"}
    group = typer.main.get_command(cli.program)
    assert isinstance(group, typer.core.TyperGroup)
    given = group.commands[command].make_context(command, options).params
    assert (given["host"], given["port"]) == ("0.0.0.0", 7777)


def test_the_image_asks_for_its_health_where_it_listens() -> None:
    """The health check, the exposed port and the command name one port, and the check is valid Python."""
    *_, port = dockerfile_command("CMD")
    program, flag, code = dockerfile_command("HEALTHCHECK")
    assert (program, flag) == ("python", "-c")
    compile(code, "healthcheck", "exec")
    assert f"http://127.0.0.1:{port}/v1/healthz" in code
    assert f"\nEXPOSE {port}\n" in (ROOT / "Dockerfile").read_text()


def test_the_image_does_not_run_as_root() -> None:
    """The last stage of the image gives up root before its command."""
    last_stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert "\nUSER stepplane\n" in last_stage


def test_the_build_context_has_what_the_image_copies() -> None:
    """Everything that the Dockerfile copies from the repository is let through by .dockerignore."""
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {source for sources in copies for source in sources.split()} == set(allowed)


def test_compose_starts_the_server_after_a_healthy_database() -> None:
    """The server waits until PostgreSQL answers."""
    assert SERVICES.keys() == {"server", "database"}
    assert SERVICES["server"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert "pg_isready" in SERVICES["database"]["healthcheck"]["test"]
    assert SERVICES["database"]["image"].startswith("postgres:16")


@pytest.mark.parametrize(
    ("service", "variable", "secret"),
    [
        ("server", "STEPPLANE_OPERATOR_TOKEN", "STEPPLANE_OPERATOR_TOKEN"),
        ("server", "STEPPLANE_DATABASE_URL", "STEPPLANE_DB_PASSWORD"),
        ("database", "POSTGRES_PASSWORD", "STEPPLANE_DB_PASSWORD"),
    ],
)
def test_compose_refuses_a_missing_secret(service: str, variable: str, secret: str) -> None:
    """A secret comes from the environment and has no default: `:?` makes compose stop when it is unset or empty."""
    value = SERVICES[service]["environment"][variable]
    assert re.search(rf"\${{{secret}:\?[^}}]+}}", value)


def test_containers_set_nothing_that_does_not_exist() -> None:
    """Every STEPPLANE_ variable that the image or the compose file sets is a setting."""
    in_image = re.findall(r"\bSTEPPLANE_(\w+)=\S+ ?\\?$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    in_compose = [name.removeprefix("STEPPLANE_") for name in SERVICES["server"]["environment"]]
    assert {"DATABASE_URL", "LOG_FORMAT"} <= set(in_image)
    assert {name.lower() for name in [*in_image, *in_compose]} <= Settings.model_fields.keys()


def test_compose_publishes_on_loopback_alone() -> None:
    """Nothing is reachable from another machine until somebody decides so."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:7777:7777"]


def test_compose_keeps_data_in_volumes() -> None:
    """Both services' data outlive their containers."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    mounted = {volume.split(":")[0] for service in SERVICES.values() for volume in service["volumes"]}
    assert mounted == compose["volumes"].keys()


def test_make_without_a_target_lists_the_targets() -> None:
    """`make` alone is help: every target that a person may call says what it does."""
    text = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (\w+)$", text, re.MULTILINE))
    described = set(re.findall(r"^(\w+):.*## \S", text, re.MULTILINE))
    assert ".DEFAULT_GOAL := help" in text
    assert phony == described >= {"help", "install", "run", "test", "check", "fmt", "lock", "clean"}
