"""Settings and vocabularies, changed at random: a conversion, or an error of Ingot's own."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from checkpoints import CONFIG, TOKENIZER, write_llama
from ingot.convert.conversion import plan
from ingot.errors import IngotError

ROUNDS = 60
LONG_ROPE = {"rope_type": "longrope", "short_factor": [1] * 8, "long_factor": [1] * 8}
VALUES: list[Any] = [
    None, 0, -1, 1, 2, 7, 1.5, 1e308, 2**31, 2**70, True, "", "x", [], {}, [1], [None], {"a": 1},
    {"type": "Sequence"}, {"type": "ByteLevel"}, ["Qwen2ForCausalLM"], ["GptOssForCausalLM"],
    ["BertModel"], ["MambaForCausalLM"], ["GPT2LMHeadModel"], {"rope_type": "llama3"},
    {"rope_type": "yarn", "factor": 2}, {"rope_type": "linear", "factor": 0},
    {**LONG_ROPE, "original_max_position_embeddings": 1}, {"quant_method": "gptq"},
    {"quant_method": ["a"]},
]  # fmt: skip
KEYS = (
    "rope_scaling", "rope_parameters", "rope_theta", "head_dim", "text_config", "merges",
    "tie_word_embeddings", "quantization_config", "num_key_value_heads", "num_local_experts",
    "bos_token_id", "added_tokens_decoder", "chat_template", "bos_token",
)  # fmt: skip
TOKENIZERS: list[dict[str, Any]] = [
    dict(TOKENIZER),
    {
        "model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3}, "merges": ["a b"]},
        "normalizer": {"type": "Prepend"},
        "added_tokens": [{"id": 4, "content": "<x>", "special": True}],
    },
    {
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]},
        "pre_tokenizer": {"type": "Metaspace"},
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": ""},
    },
    {"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}}},
]
DESCRIBED = {
    "chat_template": "x",
    "bos_token": "!",
    "added_tokens_decoder": {"3": {"content": "$", "special": True}},
}


def changed(value: Any, dice: random.Random) -> Any:
    """The value with one or two changes somewhere inside."""
    if isinstance(value, dict):
        found = dict(value)
        for _ in range(dice.randint(1, 2)):
            keys = list(found)
            action = dice.random()
            if action < 0.3 and keys:
                found[dice.choice(keys)] = dice.choice(VALUES)
            elif action < 0.5 or not keys:
                found[dice.choice(KEYS)] = dice.choice(VALUES)
            elif action < 0.6:
                found.pop(dice.choice(keys))
            else:
                key = dice.choice(keys)
                found[key] = changed(found[key], dice)
        return found
    if isinstance(value, list) and value:
        at = dice.randrange(len(value))
        return [*value[:at], dice.choice(VALUES), *value[at + 1 :]]
    return dice.choice(VALUES)


@pytest.mark.filterwarnings("ignore:unknown pre-tokenizer")
@pytest.mark.parametrize("seed", range(5))
def test_no_file_is_a_surprise(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    folder = write_llama(tmp_path / "model")
    refused = 0
    for _ in range(ROUNDS):
        files: dict[str, Any] = {
            "config.json": dict(CONFIG),
            "tokenizer.json": dice.choice(TOKENIZERS),
            "tokenizer_config.json": DESCRIBED,
        }
        for _ in range(dice.randint(1, 3)):
            name = dice.choice(list(files))
            files[name] = changed(files[name], dice)
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content))
        try:
            plan(folder)
        except IngotError:
            refused += 1
    assert 0 < refused < ROUNDS
