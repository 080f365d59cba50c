"""Opens a model of a server: plans its context and memory, and says both."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ingot import convert
from ingot.api import LLM
from ingot.backends.backend import Stage
from ingot.engine.model.plan import ModelPlan, plan_model
from ingot.errors import IngotError
from ingot.server.options import ServedModel

Report = Callable[[str], None]
OnProgress = Callable[[float], None]  # the share of the weights that are on a GPU


def plan_of(model: ServedModel) -> ModelPlan | None:
    """The plan of a model; None if there is none, and opening the model will say why."""
    try:
        return plan_model(model.path, model.engine)
    except (IngotError, OSError, ValueError):
        return None


def is_valid(model: ServedModel) -> bool:
    """Whether a model's file has a valid header and all of its tensors."""
    try:
        convert.open_model(model.path).close()
    except (IngotError, OSError):
        return False
    return True


def open_model(
    model: ServedModel, plan: ModelPlan | None, report: Report, progress: OnProgress
) -> LLM:
    """Open a model. Its context is the longest that there is memory for, if none is given."""
    engine = model.engine
    if engine.context is None and plan is not None:
        engine = replace(engine, context=plan.context)
    options: dict[str, Any] = {name: getattr(engine, name) for name in engine.__dataclass_fields__}
    begun: set[Stage] = set()
    reported = 0.0

    def opening(stage: Stage, done: int, total: int) -> None:
        nonlocal reported
        if stage not in begun:
            begun.add(stage)
            amount = f"{total / 1e9:.2f} GB" if stage is Stage.WEIGHTS else str(total)
            report(f"{model.name}: {stage} ({amount})")
        share = done / max(total, 1)
        if stage is Stage.WEIGHTS and (share >= reported + 0.05 or done == total):
            reported = share
            progress(share)

    llm = LLM(
        model.path,
        chat_template=model.chat_template,
        pooling=model.pooling,
        progress=opening,
        **options,
    )
    if llm.engine.model.placement is not None:
        report(f"{model.name}: {llm.engine.model.placement}")
    if model.engine.context is None and plan is not None:
        report(f"{model.name}: {plan.remark}")
    return llm
