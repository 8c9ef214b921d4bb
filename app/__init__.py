"""The debug plane for what the steps of a pipeline put out.

Nothing is imported here, so that a layer costs only what it uses.
"""

from importlib.metadata import version

# pyproject.toml is the one place of the version; the installed metadata carries it here.
__version__ = version("stepplane")
