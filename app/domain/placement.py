"""Placement: the directory to which a step's files are written, and which names may be files there.

The invariant: a path made here lies directly in the directory that the template names below its
root. A name that could lead elsewhere is refused before anything is created.

Source: contract §3, "Placement"; ``tests/vectors/placement.json``.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, NamedTuple
from unicodedata import normalize

from pydantic import BaseModel, ConfigDict

from app.domain.errors import InvalidKey, InvalidPlacement
from app.domain.ids import CTX_NAME
from app.domain.paths import quoted

RootPreference = Literal["work_dir", "project_root"]

MAX_NAME_BYTES = 200
"""How long the UTF-8 form of a file's name may be; file systems allow 255, an ending and a temporary name included."""


class ProjectionPlacement(BaseModel):
    """Where a step's files go: which root is preferred, and the directory below it.

    ``{task_id}`` in the template stands for the step's id.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    DEFAULT: ClassVar["ProjectionPlacement"]

    root_preference: RootPreference = "work_dir"
    dir_template: str = "workspace/tasks/{task_id}/ctx"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any] | None) -> "ProjectionPlacement":
        """Read a ``projection_placement``; what it leaves out (or gives as null) is as in ``DEFAULT``.

        Raises:
            InvalidPlacement: it could not be followed safely; ``reason`` says which rule it breaks.
        """
        fault = find_fault(spec)
        if fault is not None:
            raise InvalidPlacement(fault.reason, f"projection_placement.{fault.field} {fault.message}")
        given = {key: item for key, item in (spec or {}).items() if item is not None}
        default = cls()
        return cls(
            root_preference=given.get("root", default.root_preference),
            dir_template=given.get("dir_template", default.dir_template),
        )

    def resolve_root(self, work_dir: str | None, project_root: str | None) -> str | None:
        """Choose the root: the preferred one, else the other, else none. An empty one is absent."""
        roots = (work_dir, project_root) if self.root_preference == "work_dir" else (project_root, work_dir)
        return roots[0] or roots[1] or None

    def relative_dir(self, task_id: str) -> tuple[str, ...]:
        """Name the directories from the root down to the step's own.

        Raises:
            InvalidKey: the id is no plain file name.
        """
        check_file_name(task_id)
        return tuple(part.replace(_PLACEHOLDER, task_id) for part in _components(self.dir_template))

    def target_dir(self, root: str, task_id: str) -> str:
        """Name the directory of a step's files.

        Raises:
            InvalidKey: the id is no plain file name.
        """
        return "/".join([root.rstrip("/"), *self.relative_dir(task_id)])

    def target_path(self, root: str, task_id: str, stem: str) -> str:
        """Name the Markdown file of a step's Final or of its view.

        Raises:
            InvalidKey: the id or the stem is no plain file name.
        """
        return f"{self.target_dir(root, task_id)}/{check_file_name(stem)}.md"


ProjectionPlacement.DEFAULT = ProjectionPlacement()


def check_file_name(name: str) -> str:
    """Return a stem, part name or id as it came, when it is a plain file name.

    Raises:
        InvalidKey: it is empty or a dot name, holds a separator or a control character, is no valid
            Unicode, or its UTF-8 form is over ``MAX_NAME_BYTES``.
    """
    fault = _name_fault(name)
    if fault is not None:
        raise InvalidKey(f"{quoted(name)} cannot be a file name: {fault}")
    return name


@lru_cache(16_384)  # a part is compared with all others of its step
def disk_name(name: str) -> str:
    """Return what a disk that tells least apart makes of a file's name: two names are one file where this is the same.

    Such disks (those of macOS and Windows, shares, folders with casefold) compare names without regard to case and to
    how a letter is composed, and drop dots and spaces at the end.
    """
    return normalize("NFC", normalize("NFD", name).casefold()).rstrip(". ")


def is_device(name: str) -> bool:
    """Tell whether some disk keeps a name for a device, as Windows does ``NUL`` with whatever ending."""
    return _DEVICE.fullmatch(disk_name(name).split(".")[0].rstrip()) is not None


def find_namesake(name: str, step_name: str, parts: Iterable[str]) -> str | None:
    """Return the file of a step that a new part's would be on some disk; None where it would be none's.

    Args:
        name: what the part is to be called.
        step_name: the canonical name of its step.
        parts: the names of the step's other parts.
    """
    if _name_fault(name) is not None:
        return None  # it is kept, and never a file
    taken = (f"{CTX_NAME}.md", f"{step_name}.md", *parts)
    return next((other for other in taken if disk_name(other) == disk_name(name)), None)


class PlacementFault(NamedTuple):
    """Which field of a ``projection_placement`` breaks which rule; ``message`` goes on after the field's name."""

    reason: str
    field: str
    message: str


def find_fault(spec: Mapping[str, Any] | None) -> PlacementFault | None:
    """Find the first rule that a ``projection_placement`` breaks: the root is judged first, then the template."""
    given = spec or {}
    for name in given:
        if name not in _FIELDS:
            return PlacementFault("unknown_field", name, "is no field of it: the fields are root and dir_template")
    root, template = given.get("root"), given.get("dir_template")
    if root is not None and root not in _ROOTS:
        message = f"must be one of work_dir, project_root, not {quoted(str(root))}"
        return PlacementFault("invalid_root", "root", message)
    if template is None:
        return None
    if not isinstance(template, str):
        return PlacementFault("invalid_dir_template", "dir_template", "must be a string")
    for reason, is_broken, message in _template_rules(template):
        if is_broken:
            return PlacementFault(reason, "dir_template", message)
    return None


_FIELDS: Final = ("root", "dir_template")
_ROOTS: Final = ("work_dir", "project_root")
_PLACEHOLDER: Final = "{task_id}"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_DEVICE = re.compile("con|prn|aux|nul|conin\\$|conout\\$|(com|lpt)[0-9¹²³]")
_LONE = re.compile("[\ud800-\udfff]")
_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:")


def _template_rules(template: str) -> tuple[tuple[str, bool, str], ...]:
    parts = _components(template)
    return (
        ("empty_dir_template", not template, "must not be empty"),
        ("missing_task_id_placeholder", _PLACEHOLDER not in template, f"must contain {_PLACEHOLDER}"),
        ("absolute_path", bool(_ABSOLUTE.match(template)), "must be relative to the root"),
        ("parent_dir_component", ".." in parts, "must not lead upwards with '..'"),
        (
            "invalid_dir_template",
            bool(_CONTROL.search(template) or _LONE.search(template)),
            "must not hold control characters or lone surrogates",
        ),
    )


def _components(template: str) -> list[str]:
    """Split a template at both separators; empty and ``.`` components say nothing."""
    return [part for part in re.split(r"[/\\]", template) if part not in {"", "."}]


def _name_fault(name: str) -> str | None:
    rules = (
        (not name, "it is empty"),
        (name in {".", ".."}, "it names a directory"),
        ("/" in name or "\\" in name, "it holds a path separator"),
        (_CONTROL.search(name), "it holds a control character"),
        (_LONE.search(name), "it is no valid Unicode"),
        (len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES, f"its UTF-8 form is over {MAX_NAME_BYTES} bytes"),
    )
    return next((fault for is_broken, fault in rules if is_broken), None)
