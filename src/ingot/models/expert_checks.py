"""Whether a file states the gating of experts that its network computes.

A described network and the keys of its file come in. Most architectures fix the gating, and their
files need not state it; converters state it for some of them all the same.
"""

from collections.abc import Iterator

from ingot.errors import ModelError
from ingot.graph.ops import Gating
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import ExpertsSpec, LayerSpec, Network

_NAMES = {
    Gating.SOFTMAX: "softmax",
    Gating.SIGMOID: "sigmoid",
    Gating.CHOSEN_SOFTMAX: "softmax of the chosen experts",
    Gating.SPARSE_MIXER: "sparse mixer",
}


def check_gating(network: Network, h: Hyperparameters) -> None:
    """Refuse a gating that is unknown, or is not the one of the network's experts."""
    for experts in _experts(network):
        stated = h.stated_gating
        if stated is not None and not _agree(stated, experts):
            raise ModelError(
                f"{h.architecture}.expert_gating_func says {_NAMES[stated]}, but the experts of "
                f"{h.architecture} are weighed by {_NAMES[experts.gating]}; take a file from a "
                "converter that knows the architecture"
            )


def _experts(network: Network) -> Iterator[ExpertsSpec]:
    for layer in (*network.layers, *network.mtp):
        if isinstance(layer, LayerSpec):
            if isinstance(layer.mlp, ExpertsSpec):
                yield layer.mlp
            if layer.beside_experts:
                yield layer.beside_experts.experts


def _agree(stated: Gating, experts: ExpertsSpec) -> bool:
    if stated is experts.gating:
        return True
    # A softmax of all experts whose chosen weights are made to add up to 1 is one of the chosen.
    chosen = experts.gating is Gating.CHOSEN_SOFTMAX or experts.normalize
    return chosen and {stated, experts.gating} == {Gating.SOFTMAX, Gating.CHOSEN_SOFTMAX}
