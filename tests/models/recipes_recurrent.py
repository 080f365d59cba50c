"""Recipes of recurrent models (see recipes.py)."""

from dataclasses import replace
from typing import Any

import numpy as np

from models.recipe import Joined, Recipe, changed

NAMES = {
    "backbone.": "",
    "embeddings": "token_embd",
    ".norm.weight": ".attn_norm.weight",
    "norm_f": "output_norm",
    "mixer.in_proj": "ssm_in",
    "mixer.conv1d": "ssm_conv1d",
    "mixer.out_proj": "ssm_out",
}
CONVOLUTION = Joined(
    ("ssm_conv1d.weight",), lambda channels, _, taps: (channels, taps), lambda w: w[:, None]
)


def keys(config: Any) -> dict[str, int | float | str | None]:
    """What both kinds have in their metadata."""
    return {
        "attention.head_count": 0,
        "feed_forward_length": 0,
        "attention.layer_norm_epsilon": None,
        "attention.layer_norm_rms_epsilon": config.layer_norm_epsilon,
        "ssm.conv_kernel": config.conv_kernel,
        "ssm.inner_size": config.expand * config.hidden_size,
        "ssm.state_size": config.state_size,
    }


def norm_of_groups(model: Any) -> None:
    """Have the norm behind the gate look at each group by itself, as the original and files do.

    In transformers it looks at all of them together, which is the same for one group.
    """
    for layer in model.backbone.layers:
        norm, groups = layer.mixer.norm, layer.mixer.n_groups

        def forward(x: Any, gate: Any, norm: Any = norm, groups: int = groups) -> Any:
            runs = (x * gate * gate.sigmoid()).unflatten(-1, (groups, -1))
            mean = runs.pow(2).mean(-1, keepdim=True)
            return (runs * (mean + norm.variance_epsilon).rsqrt()).flatten(-2) * norm.weight

        norm.forward = forward


def group_norm(groups: int) -> Joined:
    """The weights of the norm behind the gate."""
    return Joined(
        ("ssm_norm.weight",), lambda width: (groups, width // groups), lambda w: w.reshape(-1)
    )


MAMBA = Recipe(
    architecture="mamba",
    model="MambaForCausalLM",
    config={
        "hidden_size": 36,
        "num_hidden_layers": 3,
        "state_size": 5,
        "conv_kernel": 4,
        "time_step_rank": 7,
        "use_associative_scan": False,
        "residual_in_fp32": False,
    },
    metadata=lambda c: {**keys(c), "ssm.time_step_rank": c.time_step_rank, "ssm.dt_b_c_rms": False},
    names={
        **NAMES,
        "mixer.x_proj": "ssm_x",
        "mixer.dt_proj": "ssm_dt",
        "mixer.A_log": "ssm_a",
        "mixer.D": "ssm_d",
    },
    transforms={"ssm_a": lambda a, _: np.log(-a.astype(np.float64))},
    joined={"mixer.conv1d.weight": CONVOLUTION},
)
MAMBA2 = Recipe(
    architecture="mamba2",
    model="Mamba2ForCausalLM",
    config={
        "hidden_size": 33,
        "num_hidden_layers": 3,
        "state_size": 7,
        "conv_kernel": 4,
        "num_heads": 6,
        "head_dim": 11,
        "n_groups": 1,
        "chunk_size": 16,
        "residual_in_fp32": False,
    },
    metadata=lambda c: {
        **keys(c),
        "ssm.time_step_rank": c.num_heads,
        "ssm.group_count": c.n_groups,
    },
    names={"mixer.dt_bias": "ssm_dt.bias", **NAMES},
    joined={
        "mixer.conv1d.weight": CONVOLUTION,
        "mixer.A_log": Joined(
            ("ssm_a",), lambda heads: (heads, 1), lambda a: np.log(-a.astype(np.float64))[:, 0]
        ),
        "mixer.D": Joined(("ssm_d",), lambda heads: (heads, 1), lambda d: d[:, 0]),
        "mixer.norm.weight": group_norm(1),
    },
    adjust=norm_of_groups,
)

RECURRENT: dict[str, Recipe] = {
    "mamba": MAMBA,
    # Rows of whole blocks, so that there is something to quantize.
    "mamba-falcon": replace(
        changed(
            MAMBA,
            {
                "hidden_size": 64,
                "state_size": 16,
                "mixer_rms_eps": 1e-5,
                "tie_word_embeddings": False,
            },
        ),
        model="FalconMambaForCausalLM",
        metadata=lambda c: {**MAMBA.metadata(c), "ssm.dt_b_c_rms": True},
    ),
    "mamba2": MAMBA2,
    "mamba2-groups": replace(
        changed(MAMBA2, {"hidden_size": 64, "num_heads": 8, "head_dim": 16, "n_groups": 2}),
        joined={**MAMBA2.joined, "mixer.norm.weight": group_norm(2)},
    ),
}
