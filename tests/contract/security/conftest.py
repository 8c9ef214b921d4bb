"""Fixtures of the security tests."""

import pytest


@pytest.fixture
def dialect() -> str:
    """One database is enough: nothing here is its affair."""
    return "sqlite"
