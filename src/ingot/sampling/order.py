"""The names of the samplers, and their default order.

 1. logit_bias    biases and bans; end-of-text tokens are banned before `min_tokens`
 2. processors    functions of the caller
 3. penalties     repetition, presence, frequency
 4. dry           penalties for continuing a repetition
 5. grammar       bans tokens that the grammar does not allow
 6. top_n_sigma   near the largest logit, in standard deviations
 7. top_k         the k likeliest
 8. typical_p     surprise near the entropy
 9. tail_free     up to where the probabilities flatten out
10. epsilon, eta  at least a probability
11. top_p         the likeliest that together reach p
12. min_p         at least a share of the likeliest
13. xtc           sometimes without the likeliest
14. temperature   flatter or sharper; also the dynamic one
15. (the draw)    always last; mirostat or adaptive-p replace it

By default only top_k, top_p, min_p and temperature do something. `infill` runs only if a request
names it. The first five change logits of the whole vocabulary. If an order leaves out biases,
processors or the grammar, they run first, because bans must be enforced.
"""

from collections.abc import Sequence

from ingot.errors import SamplingError

DEFAULT_ORDER = (
    "logit_bias",
    "processors",
    "penalties",
    "dry",
    "grammar",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "tail_free",
    "epsilon",
    "eta",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
NAMES = (*DEFAULT_ORDER, "infill")
ALWAYS = ("logit_bias", "processors", "grammar")

# Other spellings, from llama.cpp and elsewhere.
_SPELLINGS = {
    "typ_p": "typical_p",
    "typical": "typical_p",
    "temp": "temperature",
    "tfs": "tail_free",
    "tfs_z": "tail_free",
    "nucleus": "top_p",
}


_EXPECTED = f"a list of different sampler names out of {', '.join(NAMES)}"


def checked_order(names: object) -> tuple[str, ...]:
    """Sampler names in their standard spelling; an error lists the known names."""
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise SamplingError("samplers", names, _EXPECTED)
    spelled = [str(name).lower().replace("-", "_") for name in names]
    known = [_SPELLINGS.get(name, name) for name in spelled]
    if not set(known) <= set(NAMES) or len(set(known)) != len(known):
        raise SamplingError("samplers", names, _EXPECTED)
    return tuple(name for name in ALWAYS if name not in known) + tuple(known)
