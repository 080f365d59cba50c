"""Lower what is between the linear maps of a layer: heads, cache, attention."""

from ingot.backends.gpu.attention import CacheView, HeadNorm, Heads
from ingot.backends.gpu.lower_rows import norm_rows
from ingot.backends.gpu.lower_state import State, launch_of, missing
from ingot.backends.gpu.step import Launch, Step
from ingot.backends.gpu.values import HALF_SCALE
from ingot.graph import ops as o


@missing.register
def _(op: o.StoreKv) -> str | None:
    norms = [norm for norm in (op.query_norm, op.key_norm) if norm]
    return "norms of heads with biases" if any(norm.bias for norm in norms) else None


@launch_of.register
def store_kv(op: o.StoreKv, state: State) -> Launch:
    """Where sequences have one token each, attention stores, and only whole norms are left."""
    cache = _cache(state, op.kv_layer)
    before: list[Launch] = []
    norms: list[HeadNorm] = []
    for item, norm in ((op.query, op.query_norm), (op.key, op.key_norm)):
        whole = norm is not None and _length(norm) != cache.head_size
        if norm is not None and whole:  # of all heads together
            before.append(norm_rows(state, item, norm, state.values.tensor(item), item.width))
        norms.append(_head_norm(state, None if whole else norm))
    heads = Heads(
        query=state.values.tensor(op.query),
        key=state.values.tensor(op.key),
        value=state.values.tensor(op.value),
        query_norm=norms[0],
        key_norm=norms[1],
        rotary=state.vectors.rotary(op.rope) if op.rope else None,
        count=op.query.width // cache.head_size,
        kv_count=op.key.width // cache.head_size,
    )
    state.heads[op.kv_layer] = heads

    def launch(step: Step) -> None:
        for run in before:
            run(step)
        if not step.single:
            state.attention.store(heads, state.turned, cache, step.inputs, state.table_blocks)

    return launch


@launch_of.register
def attend(op: o.Attend, state: State) -> Launch:
    """Attention, with the storing where sequences have one token each."""
    cache, sinks = _cache(state, op.kv_layer), state.vectors.get(op.sinks)
    out, heads = state.values.tensor(op.out), state.heads[op.kv_layer]

    def launch(step: Step) -> None:
        state.attention.attend(
            op,
            heads,
            state.turned,
            out,
            HALF_SCALE,
            sinks,
            cache,
            step,
            state.table_blocks,
        )

    return launch


def _head_norm(state: State, norm: o.Normalization | None) -> HeadNorm:
    if norm is None or norm.weight is None:
        return HeadNorm()
    each = norm.weight.shape[-1] if len(norm.weight.shape) > 1 else 0
    layer = norm.kind is o.NormKind.LAYER
    return HeadNorm(state.vectors.get(norm.weight), each, norm.epsilon, layer)


def _cache(state: State, layer: int) -> CacheView:
    pool = state.pools[state.layout.places[layer].group]
    return CacheView.of(state.layout, layer, state.graph.kv_layers[layer], pool)


def _length(norm: o.Normalization) -> int | None:
    """Of the runs that a norm is over; None where that is the row."""
    return None if norm.weight is None else norm.weight.shape[-1]
