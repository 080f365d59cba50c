"""Which GPU a model of a server is opened on: one model for each GPU, then two, and so on.

A model and the devices of those that are open come in; the model goes out, with a GPU by its
number. A model whose device says which GPU, or that is on the CPU, stays as it is.
"""

from collections.abc import Iterable
from dataclasses import replace

from ingot.backends.backend import count_gpus
from ingot.engine import EngineOptions
from ingot.server.options import ServedModel


def on_free_gpu(model: ServedModel, others: Iterable[EngineOptions]) -> ServedModel:
    """The model on the GPU that the fewest others use; of equals, on the first."""
    engine = model.engine
    if engine.device != "cuda" or engine.gpu_split is not None:
        return model
    count = count_gpus()
    if count < 2:
        return model
    used = [device for other in others for device in _devices(other)]
    device = min((f"cuda:{number}" for number in range(count)), key=used.count)
    return replace(model, engine=replace(engine, device=device))


def _devices(engine: EngineOptions) -> list[str]:
    """The GPUs that an open model is on."""
    name, _, number = engine.device.partition(":")
    if name != "cuda":
        return ["cuda:0"] if engine.device == "auto" else []
    first = int(number or 0)
    return [f"cuda:{first + place}" for place in range(len(engine.gpu_split or (1,)))]
