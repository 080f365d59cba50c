"""Multi-token prediction as operations: a layer that says the token after the next one.

A network comes in whose file has such layers; the graph of the first of them goes out. Its rows are
of tokens and the network's hidden states before them, both after their norms (nextn.enorm and
nextn.hnorm), side by side. nextn.eh_proj makes one row of the two, then come a layer like the
others, nextn.shared_head_norm and an output, which may be those of the network.
"""

from collections.abc import Callable
from dataclasses import replace

from ingot.errors import ModelError
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.models.lower import Blocks, add_output
from ingot.models.spec import Network

PROJECTION = "nextn.eh_proj"
HEAD_NORM, HEAD = "nextn.shared_head_norm", "nextn.shared_head_head"


def lower_mtp(network: Network, has_tensor: Callable[[str], bool]) -> ComputationGraph:
    """Write the first layer that predicts tokens further ahead down as operations."""
    if not network.mtp or not network.output_norm:
        raise ModelError("the network has no layers for multi-token prediction")
    build, number = Blocks(network.stack), len(network.layers)
    joined = o.Value("nextn.joined", 2 * network.width)
    build.append(o.TakeRows(out=joined))
    build.layer = number
    stream = build.linear(joined, PROJECTION, network.width)
    stream = build.block(stream, None, network.mtp[0], last=True)
    if has_tensor(f"blk.{number}.{HEAD_NORM}.weight"):
        stream = build.norm(stream, replace(network.output_norm, name=HEAD_NORM))
    else:
        build.layer = None
        stream = build.norm(stream, network.output_norm)
    build.layer = number
    if has_tensor(f"blk.{number}.{HEAD}.weight"):
        logits = build.linear(stream, HEAD, network.vocabulary)
    else:
        build.layer = None
        logits = add_output(build, network, stream, tied=not has_tensor("output.weight"))
    return ComputationGraph(
        ops=tuple(build.ops),
        logits=logits,
        kv_layers=tuple(build.kv_layers),
        context_length=network.context_length,
    )
