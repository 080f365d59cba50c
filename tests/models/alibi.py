"""ALiBi for models of transformers that lack it: a penalty for the distance of a key."""

from importlib import import_module
from typing import Any

# Of so many heads: those of four, and every other one of eight.
SLOPES = {
    5: [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1],
    6: [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3],
}


def add_alibi(attention: Any, heads: int) -> None:
    """Change what an attention module computes; its mask stays."""
    torch: Any = import_module("torch")
    slopes, attend = torch.tensor(SLOPES[heads]).double(), attention.forward

    def forward(states: Any = None, **others: Any) -> Any:
        states = others.pop("hidden_states", states)
        places = torch.arange(states.shape[1])
        distances = (places[:, None] - places[None, :]).abs()
        mask = -slopes[None, :, None, None] * distances
        if others.get("attention_mask") is not None:
            mask = mask + others["attention_mask"]
        return attend(states, **{**others, "attention_mask": mask})

    attention.forward = forward
