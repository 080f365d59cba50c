"""Recent networks for benchmarks: keys and tensors of Qwen3-Next, Granite 4 H and DeepSeek V2 Lite.

A number of layers comes in, a `Model` goes out, which `synthetic.py` writes with random weights.
Every size is the real one, but there are fewer layers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Sizes = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Model:
    """What a file says: keys without the architecture's name in front, and tensors."""

    architecture: str
    layers: int
    vocabulary: int
    keys: Mapping[str, int | float | bool | list[int]]
    tensors: tuple[tuple[str, tuple[int, ...]], ...]


def experts(width: int, inner: int, count: int, shared: int) -> Sizes:
    """Experts of a layer, and the shared one, which is as wide as said."""
    yield "ffn_gate_inp.weight", (count, width)
    yield "ffn_gate_exps.weight", (count, inner, width)
    yield "ffn_up_exps.weight", (count, inner, width)
    yield "ffn_down_exps.weight", (count, width, inner)
    yield "ffn_gate_shexp.weight", (shared, width)
    yield "ffn_up_shexp.weight", (shared, width)
    yield "ffn_down_shexp.weight", (width, shared)


def whole(width: int, vocabulary: int, layers: list[Sizes]) -> Sizes:
    """Embedding, layers, norm and output."""
    yield "token_embd.weight", (vocabulary, width)
    for number, layer in enumerate(layers):
        for name, size in layer:
            yield f"blk.{number}.{name}", size
    yield "output_norm.weight", (width,)
    yield "output.weight", (vocabulary, width)


def qwen3_next(layers: int, interval: int = 4) -> Model:
    """80B-A3B: a gated delta rule in all layers but every fourth (`interval`), 512 experts."""
    width, vocabulary, heads, kv_heads, head = 2048, 151936, 16, 2, 256
    keys, values, size, taps = 16, 32, 128, 4  # heads of the delta rule, and their elements
    mixed = (2 * keys + values) * size

    def delta() -> Sizes:
        yield "attn_qkv.weight", (mixed, width)
        yield "attn_gate.weight", (values * size, width)
        yield "ssm_ba.weight", (2 * values, width)
        yield "ssm_conv1d.weight", (mixed, taps)
        yield "ssm_dt.bias", (values,)
        yield "ssm_a", (values,)
        yield "ssm_norm.weight", (size,)
        yield "ssm_out.weight", (width, values * size)

    def attention() -> Sizes:
        yield "attn_q.weight", (2 * heads * head, width)
        yield "attn_k.weight", (kv_heads * head, width)
        yield "attn_v.weight", (kv_heads * head, width)
        yield "attn_q_norm.weight", (head,)
        yield "attn_k_norm.weight", (head,)
        yield "attn_output.weight", (width, heads * head)

    def layer(number: int) -> Sizes:
        yield "attn_norm.weight", (width,)
        yield from attention() if (number + 1) % interval == 0 else delta()
        yield "post_attention_norm.weight", (width,)
        yield "ffn_gate_inp_shexp.weight", (width,)
        yield from experts(width, inner=512, count=512, shared=512)

    return Model(
        "qwen3next",
        layers,
        vocabulary,
        {
            "block_count": layers,
            "context_length": 262144,
            "embedding_length": width,
            "feed_forward_length": 5120,
            "attention.head_count": heads,
            "attention.head_count_kv": kv_heads,
            "attention.key_length": head,
            "attention.value_length": head,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": 64,
            "rope.freq_base": 1e7,
            "expert_count": 512,
            "expert_used_count": 10,
            "expert_feed_forward_length": 512,
            "expert_shared_feed_forward_length": 512,
            "full_attention_interval": interval,
            "ssm.conv_kernel": taps,
            "ssm.state_size": size,
            "ssm.group_count": keys,
            "ssm.time_step_rank": values,
            "ssm.inner_size": values * size,
        },
        tuple(whole(width, vocabulary, [layer(number) for number in range(layers)])),
    )


def granite_4_h_tiny(layers: int, interval: int = 10) -> Model:
    """7B-A1B: Mamba 2 in all layers but one of ten (`interval`), 64 experts and a shared one."""
    width, vocabulary, heads, kv_heads, head = 1536, 100352, 12, 4, 128
    channels, states, groups, state_heads, taps = 3072, 128, 1, 48, 4
    convolved = channels + 2 * groups * states

    def mamba2() -> Sizes:
        yield "ssm_in.weight", (channels + convolved + state_heads, width)
        yield "ssm_conv1d.weight", (convolved, taps)
        yield "ssm_conv1d.bias", (convolved,)
        yield "ssm_dt.bias", (state_heads,)
        yield "ssm_a", (state_heads, 1)
        yield "ssm_d", (state_heads, 1)
        yield "ssm_norm.weight", (groups, channels // groups)
        yield "ssm_out.weight", (width, channels)

    def attention() -> Sizes:
        yield "attn_q.weight", (heads * head, width)
        yield "attn_k.weight", (kv_heads * head, width)
        yield "attn_v.weight", (kv_heads * head, width)
        yield "attn_output.weight", (width, heads * head)

    def attends(number: int) -> bool:
        return number % interval == interval // 2  # the sixth of ten

    def layer(number: int) -> Sizes:
        yield "attn_norm.weight", (width,)
        yield from attention() if attends(number) else mamba2()
        yield "ffn_norm.weight", (width,)
        yield from experts(width, inner=512, count=64, shared=1024)

    return Model(
        "granitehybrid",
        layers,
        vocabulary,
        {
            "block_count": layers,
            "context_length": 131072,
            "embedding_length": width,
            "feed_forward_length": 512,
            "attention.head_count": heads,
            "attention.head_count_kv": [kv_heads * attends(number) for number in range(layers)],
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.scale": 0.0078125,
            "rope.dimension_count": head,
            "rope.freq_base": 10000.0,
            "rope.scaling.finetuned": False,
            "embedding_scale": 12.0,
            "residual_scale": 0.22,
            "logit_scale": 6.0,
            "expert_count": 64,
            "expert_used_count": 6,
            "expert_shared_feed_forward_length": 1024,
            "ssm.conv_kernel": taps,
            "ssm.inner_size": channels,
            "ssm.state_size": states,
            "ssm.time_step_rank": state_heads,
            "ssm.group_count": groups,
        },
        tuple(whole(width, vocabulary, [layer(number) for number in range(layers)])),
    )


def deepseek_v2_lite(layers: int) -> Model:
    """16B-A2.4B: latents of 512 + 64 elements, 64 experts.

    Queries are made of low rank, as in the larger V2: llama.cpp knows those of Lite by its number
    of layers.
    """
    width, vocabulary, heads, dense = 2048, 102400, 16, 10944
    latent, rotary, own, value, rank = 512, 64, 128, 128, 1536

    def layer(number: int) -> Sizes:
        yield "attn_norm.weight", (width,)
        yield "attn_q_a.weight", (rank, width)
        yield "attn_q_a_norm.weight", (rank,)
        yield "attn_q_b.weight", (heads * (own + rotary), rank)
        yield "attn_kv_a_mqa.weight", (latent + rotary, width)
        yield "attn_kv_a_norm.weight", (latent,)
        yield "attn_k_b.weight", (heads, latent, own)
        yield "attn_v_b.weight", (heads, value, latent)
        yield "attn_output.weight", (width, heads * value)
        yield "ffn_norm.weight", (width,)
        if number == 0:
            yield "ffn_gate.weight", (dense, width)
            yield "ffn_up.weight", (dense, width)
            yield "ffn_down.weight", (width, dense)
        else:
            yield from experts(width, inner=1408, count=64, shared=2 * 1408)

    return Model(
        "deepseek2",
        layers,
        vocabulary,
        {
            "block_count": layers,
            "context_length": 163840,
            "embedding_length": width,
            "feed_forward_length": dense,
            "attention.head_count": heads,
            "attention.head_count_kv": 1,
            "attention.key_length": latent + rotary,
            "attention.value_length": latent,
            "attention.key_length_mla": own + rotary,
            "attention.value_length_mla": value,
            "attention.kv_lora_rank": latent,
            "attention.q_lora_rank": rank,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": rotary,
            "rope.freq_base": 10000.0,
            "expert_count": 64,
            "expert_used_count": 6,
            "expert_shared_count": 2,
            "expert_feed_forward_length": 1408,
            "expert_weights_scale": 1.0,
            "expert_weights_norm": False,
            "expert_gating_func": 1,
            "leading_dense_block_count": 1,
        },
        tuple(whole(width, vocabulary, [layer(number) for number in range(layers)])),
    )


# Networks with states, and the same with attention in every layer.
PAIRS = {
    "qwen3-next-4-layers": "qwen3-next-attention-4-layers",
    "granite-4-h-tiny-10-layers": "granite-4-h-tiny-attention-10-layers",
}
RECENT = {
    "qwen3-next-4-layers": qwen3_next(4),
    "qwen3-next-attention-4-layers": qwen3_next(4, interval=1),
    "granite-4-h-tiny-10-layers": granite_4_h_tiny(10),
    "granite-4-h-tiny-attention-10-layers": granite_4_h_tiny(10, interval=1),
    "deepseek-v2-lite-5-layers": deepseek_v2_lite(5),
}
