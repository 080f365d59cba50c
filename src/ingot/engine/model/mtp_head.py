"""MtpHead: a model's own layer for multi-token prediction, ready to run."""

from ingot.engine.model.draft_head import DraftHead
from ingot.engine.model.joined_rows import HeadInputs
from ingot.engine.model.loaded_model import LoadedModel
from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.models import build_mtp_graph, mtp_layer


class MtpHead(DraftHead):
    """The first layer of a model that predicts tokens further ahead."""

    def __init__(self, model: LoadedModel) -> None:
        graph = build_mtp_graph(model.file, model.context)
        # What the output matrix takes is the hidden state for the next guess.
        hidden = next(
            op.source for op in graph.ops if isinstance(op, o.Linear) and op.out == graph.logits
        )
        epsilon = next(op.epsilon for op in graph.ops if isinstance(op, o.Norm))
        inputs = _inputs(model.file, hidden.width, epsilon)
        super().__init__(model, graph, model.file, inputs, hidden)


def _inputs(file: GgufLoader, width: int, epsilon: float) -> HeadInputs:
    """Tokens and hidden states side by side."""
    layer = f"blk.{mtp_layer(file)}.nextn"
    own = f"{layer}.embed_tokens.weight"
    table = own if own in file.tensors else "token_embd.weight"
    norms = (f"{layer}.enorm.weight", f"{layer}.hnorm.weight")
    for name in norms:
        tensor = file.tensors.get(name)
        if tensor is None or tensor.shape != (width,):
            found = "is missing" if tensor is None else f"has shape {tensor.shape}"
            raise ModelError(
                f"{file.path}: tensor {name} (shape {(width,)}), which multi-token prediction "
                f"needs, {found}; leave speculation='mtp' out"
            )
    token_norm, hidden_norm = (o.Weight(name, (width,)) for name in norms)
    return HeadInputs(o.Weight(table, file.tensors[table].shape), token_norm, hidden_norm, epsilon)
