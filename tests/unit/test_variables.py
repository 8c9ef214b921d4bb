"""Variables: a misspelt setting is told of, a known one never."""

import pytest

from app.cli.variables import KNOWN, unknown_variables


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("STEPPLANE_OPERATR_TOKEN", "STEPPLANE_OPERATOR_TOKEN"),
        ("STEPPLANE_DATABASE_URI", "STEPPLANE_DATABASE_URL"),
        ("stepplane_base_ulr", "STEPPLANE_BASE_URL"),
        ("STEPPLANE_SERVRE", "STEPPLANE_SERVER"),
    ],
)
def test_a_misspelt_variable_is_told_with_the_nearest_known_one(misspelt: str, meant: str) -> None:
    """The warning names both."""
    (warning,) = unknown_variables([misspelt, "PATH"])
    assert f"{misspelt!r} is no setting" in warning
    assert f"did you mean {meant}?" in warning


def test_one_that_resembles_none_is_told_all_the_same() -> None:
    """It is not held to be another one."""
    (warning,) = unknown_variables(["STEPPLANE_XYZZY_QWERTY"])
    assert "did you mean" not in warning


def test_what_server_and_client_know_is_never_told() -> None:
    """In either case of its letters; nor are the variables of others."""
    assert unknown_variables([*KNOWN, *map(str.lower, KNOWN), "PATH", "STEPPLANER_X", "MY_STEPPLANE_PORT"]) == []


def test_a_warning_is_one_bounded_line() -> None:
    """Whatever the name holds."""
    (warning,) = unknown_variables(["STEPPLANE_" + "X\n\x1b" * 1000])
    assert warning.isprintable()
    assert len(warning) < 600
