"""Variables: those of the environment that begin as ours do, and that nothing here reads.

The invariant: a variable's name is shown, never its value: a misspelt secret is a secret still.
"""

import difflib
from collections.abc import Iterable

from app.config import Settings

_PREFIX = "STEPPLANE_"
_OTHERS = frozenset(
    {
        # the command line's and the SDK's
        "STEPPLANE_SERVER",
        "STEPPLANE_WORKER_HANDLE",
        "STEPPLANE_TOKEN",
        "STEPPLANE_RUN",
        "STEPPLANE_STRICT",
        "STEPPLANE_DISABLED",
        # docker-compose.yml's own
        "STEPPLANE_DB_PASSWORD",
    }
)
KNOWN = _OTHERS | {_PREFIX + name.upper() for name in Settings.model_fields}


def unknown_variables(names: Iterable[str]) -> list[str]:
    """Write a warning for each variable that looks like ours and is not, with the nearest one that is."""
    warnings = []
    for name in sorted(names):
        asked = name.upper()  # settings are read whatever the case of their names
        if asked.startswith(_PREFIX) and asked not in KNOWN:
            nearest = difflib.get_close_matches(asked[:_LONGEST], sorted(KNOWN), n=1, cutoff=0.75)
            hint = f": did you mean {nearest[0]}?" if nearest else "; README.md lists those that are"
            warnings.append(f"warning: {name[:_LONGEST]!r} is no setting, and is ignored{hint}")
    return warnings


_LONGEST = 80
