"""Opens a model of a server: plans its context and memory, and says both."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ingot.api import LLM
from ingot.engine.model.plan import ModelPlan, plan_model
from ingot.errors import IngotError
from ingot.gguf import GgufLoader
from ingot.server.options import ServedModel

Report = Callable[[str], None]
OnProgress = Callable[[float], None]  # the share of the weights that a GPU has


def plan_of(model: ServedModel) -> ModelPlan | None:
    """The plan of a model; None if there is none, and opening the model will say why."""
    try:
        return plan_model(model.path, model.engine)
    except (IngotError, OSError, ValueError):
        return None


def is_valid(model: ServedModel) -> bool:
    """Whether a model's file has a valid header and all of its tensors."""
    try:
        GgufLoader(model.path).close()
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
    sent = 0.0

    def sending(done: int, total: int) -> None:
        nonlocal sent
        if not sent:
            report(f"{model.name}: loading {total / 1e9:.2f} GB of weights to the GPU")
        if not sent or done / total >= sent + 0.05 or done == total:
            sent = max(done / total, 1e-9)
            progress(done / total)

    llm = LLM(
        model.path,
        chat_template=model.chat_template,
        pooling=model.pooling,
        progress=sending,
        **options,
    )
    if llm.engine.model.placement is not None:
        report(f"{model.name}: {llm.engine.model.placement}")
    if model.engine.context is None and plan is not None:
        report(f"{model.name}: {plan.remark}")
    return llm
