"""Launches: what a task was created with, in the form that dispatches need.

The invariant: a task never changes once it is created, so what is remembered of one is never stale.
"""

from collections import OrderedDict
from typing import NamedTuple

from app.domain.blueprint import Blueprint, parse_blueprint
from app.domain.errors import TaskNotFound
from app.domain.naming import StepNaming
from app.domain.placement import ProjectionPlacement
from app.domain.records import TaskRecord
from app.domain.values import JsonValue
from app.storage.database import Database

_REMEMBERED = 256


class Launch(NamedTuple):
    """A task's own input, its Blueprint and its table of names."""

    task: TaskRecord
    blueprint: Blueprint | None
    naming: StepNaming | None

    @property
    def placement(self) -> ProjectionPlacement:
        """Where the task's files go."""
        return self.blueprint.projection_placement if self.blueprint else ProjectionPlacement.DEFAULT

    @property
    def input(self) -> dict[str, JsonValue]:
        """What the task gives to every worker's view."""
        given = {
            "project_root": self.task.project_root,
            "work_dir": self.task.work_dir,
            "task_metadata": self.task.task_metadata,
        }
        return {field: item for field, item in given.items() if item is not None}


class Launches:
    """Finds launches, and remembers the last ones: parsing a Blueprint at every dispatch would be waste."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._remembered: OrderedDict[str, Launch] = OrderedDict()

    async def get(self, task_id: str) -> Launch:
        """Return the launch of a task.

        Raises:
            TaskNotFound: no such task.
        """
        launch = self._remembered.get(task_id)
        if launch is None:
            async with self._database.point() as stores:
                task = await stores.tasks.find(task_id)
                naming = await stores.tasks.find_naming(task_id)
            if task is None:
                raise TaskNotFound(task_id)
            blueprint = None if task.blueprint is None else parse_blueprint(task.blueprint)
            launch = self._remembered[task_id] = Launch(task, blueprint, naming)
        self._remembered.move_to_end(task_id)
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        return launch
