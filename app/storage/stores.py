"""The stores of one transaction: what a service is handed to write with, and to read with.

The invariant: all stores of one object share one connection, and so one transaction or snapshot.
"""

from app.domain.answers import Place
from app.storage.dispatches import DispatchReads, DispatchWrites
from app.storage.outputs import OutputReads, OutputWrites
from app.storage.overviews import OverviewReads
from app.storage.projection_reads import ProjectionReads
from app.storage.projections import ProjectionWrites
from app.storage.reader import Reader
from app.storage.runs import RunReads, RunWrites
from app.storage.tasks import TaskReads, TaskWrites
from app.storage.writer import Writer


class WriteStores:
    """Everything that can be written, inside one transaction."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.tasks = TaskWrites(writer)
        self.runs = RunWrites(writer)
        self.dispatches = DispatchWrites(writer)
        self.outputs = OutputWrites(writer)

    def projections(self, task_id: str, run_id: str) -> ProjectionWrites:
        """Return the store of what answers for the names of one run."""
        return ProjectionWrites(self._writer, Place(task_id, run_id))


class ReadStores:
    """Everything that can be read."""

    def __init__(self, reader: Reader) -> None:
        self.tasks = TaskReads(reader)
        self.runs = RunReads(reader)
        self.dispatches = DispatchReads(reader)
        self.outputs = OutputReads(reader)
        self.projections = ProjectionReads(reader)
        self.overviews = OverviewReads(reader)
