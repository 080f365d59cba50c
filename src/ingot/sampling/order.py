"""The samplers by name, and the order they run in unless a request says otherwise.

 1. logit_bias    biases and bans; ends of text are banned here before `min_tokens`
 2. processors    the caller's own functions
 3. penalties     repetition, presence, frequency
 4. dry           penalties for continuing what was said before
 5. grammar       bans what the grammar does not allow
 6. top_n_sigma   near the largest logit, in standard deviations
 7. top_k         the k likeliest
 8. typical_p     about as surprising as expected
 9. tail_free     before the probabilities flatten out
10. epsilon, eta  at least a probability
11. top_p         the likeliest that together reach p
12. min_p         at least a share of the likeliest
13. xtc           now and then without the likeliest
14. temperature   flatter or sharper; also the dynamic one
15. (the draw)    always last; mirostat or adaptive-p take its place

All but top_k, top_p, min_p and temperature do nothing by default. `infill` runs only where a
request names it. The first five change logits of the whole vocabulary. An order that leaves
out biases, processors or the grammar has them first: a ban that is not enforced is none.
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


def checked_order(names: object) -> tuple[str, ...]:
    """Sampler names in their one spelling, or an error that lists the known ones."""
    expected = f"a list of sampler names without repeats, of {', '.join(NAMES)}"
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise SamplingError("samplers", names, expected)
    spelled = [str(name).lower().replace("-", "_") for name in names]
    known = [_SPELLINGS.get(name, name) for name in spelled]
    if not set(known) <= set(NAMES) or len(set(known)) != len(known):
        raise SamplingError("samplers", names, expected)
    return tuple(name for name in ALWAYS if name not in known) + tuple(known)
