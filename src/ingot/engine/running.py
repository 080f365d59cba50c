"""A step that runs, and the one that may follow it before anybody has seen what it chose.

Comes in: a step of which the backend chooses all tokens. Goes out: the next one, whose tokens are
those not yet known, if nothing but the end of a text can come between: a text that turns out to
have ended then has run one token for nothing, and the others are where they would be anyway.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ingot.backends.device_sampler import DeviceSampler, SamplingPlan, Started
from ingot.engine.other_tasks import BeamTask, KeepTask, RowsTask
from ingot.engine.scheduler import Plan, Share
from ingot.engine.text_task import TextTask
from ingot.errors import CacheFullError

if TYPE_CHECKING:
    from concurrent.futures import Future

Task: TypeAlias = TextTask | RowsTask | KeepTask | BeamTask


@dataclass(frozen=True, slots=True)
class Part:
    """The tokens of a phase, on their way through the model."""

    shares: Sequence[Share[Task]]
    choices: Sequence[SamplingPlan | None]  # of each share, if the backend chooses
    started: Started


@dataclass(frozen=True, slots=True)
class Running:
    """A step."""

    plan: Plan[Task]
    masks: "Sequence[tuple[TextTask, Future[None]]]"  # on their way, too
    parts: Sequence[Part]
    is_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Following:
    """What runs after a step: `rows` are those of the step that choose the tokens."""

    shares: list[Share[Task]]
    rows: list[int]
    choices: list[SamplingPlan]

    @classmethod
    def after(cls, running: Running, tasks: int, device_sampler: DeviceSampler) -> "Following | None":
        """The next step of `tasks` tasks, if all run and go on; there is room for it then."""
        if running.plan.prompt or len(running.parts) != 1:
            return None
        found = cls([], [], [])
        part = running.parts[0]
        for row, (share, chosen) in enumerate(zip(part.shares, part.choices, strict=True)):
            task = share.task
            if task.channel.is_ended:
                continue
            if chosen is None or not isinstance(task, TextTask):
                return None
            choice = task.choice_ahead()
            if choice is None or not device_sampler.accepts(choice):
                return None
            found.shares.append(Share(task, share.strand, share.end, 1))
            found.rows.append(row)
            found.choices.append(choice)
        if not found.shares or len(found.shares) < tasks:
            return None
        return found if found._make_room() else None

    def _make_room(self) -> bool:
        reached = []
        try:
            for share in self.shares:
                share.strand.reach_ahead()
                reached.append(share.strand)
        except CacheFullError:  # somebody will have to make room first
            for strand in reached:
                strand.draw_back()
            return False
        return True
