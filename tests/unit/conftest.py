"""Unit tests: how Hypothesis runs."""

from hypothesis import settings

settings.register_profile("unit", deadline=None)  # a busy machine is no counterexample
settings.register_profile("long", deadline=None, max_examples=2_000)  # pytest --hypothesis-profile=long
settings.load_profile("unit")
