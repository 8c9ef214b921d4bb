"""Scopes: who asks, and what of a run they may see.

The invariant: deny by default; a scope that is not the operator's names exactly one run.
"""

from typing import NamedTuple

from app.domain.context import ContextPolicy
from app.domain.errors import Forbidden
from app.domain.grants import Grant
from app.domain.ids import CTX_NAME


class Scope(NamedTuple):
    """What of the debug plane a reader may see; without a grant everything."""

    grant: Grant | None = None
    policy: ContextPolicy | None = None

    def require_run(self, task_id: str, run_id: str | None) -> None:
        """Hold a worker to its own run.

        Raises:
            Forbidden: it asks for another; whether that exists is not told.
        """
        if self.grant is None:
            return
        if task_id != self.grant.task_id or (run_id is not None and run_id != self.grant.run_id):
            raise Forbidden("a worker handle reads the outputs of its own run alone")

    @property
    def sees_all(self) -> bool:
        """Tell whether nothing of the run is hidden."""
        return self.policy is None or self.policy.shows_every_step

    def allows(self, name: str, step_name: str | None = None) -> bool:
        """Tell whether what stands under a canonical name may be seen. A worker always sees its own step.

        Args:
            name: of a step or an artifact.
            step_name: of the step that put it out; an artifact may be seen, or not, as its step may.
        """
        if self.grant is None or self.policy is None or name == self.grant.name:
            return True
        if name == CTX_NAME and self.policy.steps_exclude:
            return False  # the whole result holds what the excluded steps put out
        return self.policy.allows(name, (step_name or name,))

    def require(self, name: str, step_name: str | None = None) -> None:
        """Hold a worker to the steps that its policy allows.

        Raises:
            Forbidden: this one is not among them; whether it has an output is not told.
        """
        if not self.allows(name, step_name):
            raise Forbidden("this step's context policy does not show it the output of that name")


OPERATOR = Scope()
"""Sees everything."""


def scope_of(grant: Grant) -> Scope:
    """Return what a worker may see: the steps of its policy, as snapshotted at its dispatch."""
    return Scope(grant, ContextPolicy.model_validate_json(grant.policy))
