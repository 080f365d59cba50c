"""Generates texts under a grammar from a model that knows nothing: evenly random logits."""

import numpy as np

from ingot.sampling import ChainBuilder, Grammar, SamplingParams, StopChecker
from ingot.tokenizer import Tokenizer


def write(
    builder: ChainBuilder,
    tokenizer: Tokenizer,
    grammar: Grammar,
    seed: int,
    *,
    forced: bool = False,
    max_tokens: int = 400,
    end_bias: float = 3.0,
    spread: float = 1.0,
) -> str | None:
    """A text, or None if max_tokens came before its end. Ends are made a little likelier."""
    params = SamplingParams(
        seed=seed, grammar=grammar, temperature=1.0, max_tokens=max_tokens,
        top_k=0, top_p=1.0, min_p=0.0,
        logit_bias=dict.fromkeys(tokenizer.eog_ids, end_bias),
    )  # fmt: skip
    chain, stop = builder.build(params), StopChecker(params, tokenizer, skip_special=False)
    random = np.random.default_rng(seed)
    text = ""
    while not chain.is_complete:
        tokens = chain.forced_tokens() if forced else []
        if not tokens:
            row = random.normal(scale=spread, size=tokenizer.vocab_size).astype(np.float32)
            tokens = [chain.apply(row).token]
        for token in tokens:
            piece = stop.push(token)
            text += piece.text
            if piece.finished is not None:
                return text if piece.finished == "stop" else None
            chain.accept(token)
    return text + stop.finish()


def accepts(builder: ChainBuilder, tokenizer: Tokenizer, grammar: Grammar, text: str) -> bool:
    """Whether a text is one of the grammar's, for a vocabulary of single bytes."""
    state = builder.grammar_state(grammar)
    for byte in text.encode():
        token = next(t for t in range(256) if tokenizer.token_bytes(t) == bytes([byte]))
        if not state.mask()[token >> 5] >> (token & 31) & 1:
            return False
        state.accept(token)
    return state.may_end
