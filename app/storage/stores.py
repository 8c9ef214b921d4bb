"""The stores of one transaction: what a service is handed to write with, and to read with.

The invariant: all stores of one object share one connection, and so one transaction or snapshot.
"""

from sqlalchemy import Connection

from app.domain.answers import Place
from app.storage.dispatches import DispatchReads, DispatchWrites
from app.storage.outputs import OutputReads, OutputWrites
from app.storage.overviews import OverviewReads
from app.storage.projection_reads import ProjectionReads
from app.storage.projections import ProjectionWrites
from app.storage.reader import Reader
from app.storage.runs import RunReads, RunWrites
from app.storage.tasks import TaskReads, TaskWrites


class WriteStores:
    """Everything that can be written, inside one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.tasks = TaskWrites(connection)
        self.runs = RunWrites(connection)
        self.dispatches = DispatchWrites(connection)
        self.outputs = OutputWrites(connection)

    def projections(self, task_id: str, run_id: str) -> ProjectionWrites:
        """Return the store of what answers for the names of one run."""
        return ProjectionWrites(self._connection, Place(task_id, run_id))


class ReadStores:
    """Everything that can be read."""

    def __init__(self, reader: Reader) -> None:
        self.tasks = TaskReads(reader)
        self.runs = RunReads(reader)
        self.dispatches = DispatchReads(reader)
        self.outputs = OutputReads(reader)
        self.projections = ProjectionReads(reader)
        self.overviews = OverviewReads(reader)
