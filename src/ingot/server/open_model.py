"""Opens a model of a server: plans its context and memory, and says both."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ingot import convert
from ingot.api import LLM
from ingot.backends.backend import Stage
from ingot.engine import EngineOptions
from ingot.engine.model.plan import ModelPlan, plan_model
from ingot.errors import IngotError
from ingot.server.options import ServedModel

Report = Callable[[str], None]
OnProgress = Callable[[float], None]  # the share of the weights that are on a GPU

# Bytes of weights. A process for the engine serves an 8B model on a GPU 1.2 to 1.6 times as fast
# (docs/performance.md, "A server": 4,515 to 5,526 tokens/s with 64 clients, 3,479 to 5,476 with
# 256), and takes 4.5 s to import PyTorch there. Weights of less than this are sent in half a
# second: opening such a model would take several times as long.
_SMALL_MODEL = 1 << 30


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


def has_own_process(engine: EngineOptions, plan: ModelPlan | None) -> bool:
    """Whether an engine runs in a process for itself: as asked, or a large model on a GPU."""
    if engine.engine_process is not None:
        return engine.engine_process
    return plan is not None and plan.on_gpu and plan.weights >= _SMALL_MODEL


def open_model(
    model: ServedModel, plan: ModelPlan | None, report: Report, progress: OnProgress
) -> LLM:
    """Open a model. Its context is the longest that there is memory for, if none is given."""
    engine = model.engine
    if engine.context is None and plan is not None:
        engine = replace(engine, context=plan.context)
    engine = replace(engine, engine_process=has_own_process(engine, plan))
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
    if llm.engine.model.copies is not None:
        report(f"{model.name}: {llm.engine.model.copies.remark}")
    if model.engine.context is None and plan is not None:
        report(f"{model.name}: {plan.remark}")
    return llm
