"""Tokens that mean something: named by the file, or known by their texts."""

import pytest
from small_vocabularies import MakeTokenizer, Token

from ingot.tokenizer import TokenType

CONTROL, NORMAL, USER_DEFINED = TokenType.CONTROL, TokenType.NORMAL, TokenType.USER_DEFINED
BARE = {"add_bos_token": False, "add_space_prefix": False}


@pytest.mark.parametrize(
    "text",
    [
        "<|eot_id|>",
        "<|im_end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<｜end▁of▁sentence｜>",
        "[EOT]",
    ],
)
def test_well_known_texts_end_a_generation(make_tokenizer: MakeTokenizer, text: str) -> None:
    made = make_tokenizer("llama", ["a", "b", "c", "d", (text, CONTROL)], eos_token_id=1, **BARE)
    assert made.eog_ids == {1, 4}


def test_ids_the_file_names_end_a_generation(make_tokenizer: MakeTokenizer) -> None:
    made = make_tokenizer(
        "llama", list("abcdef"), eos_token_id=3, eot_token_id=4, eom_token_id=5, **BARE
    )
    assert made.eog_ids == {3, 4, 5}


def test_fill_in_tokens(make_tokenizer: MakeTokenizer) -> None:
    tokens: list[Token] = [
        "a",
        "b",
        "e",
        "<|fim_prefix|>",
        "<|fim_pad|>",
        "<|repo_name|>",
        "<REPO>",
    ]
    made = make_tokenizer("llama", tokens, eos_token_id=2, **BARE)
    assert made.eog_ids == {2, 4, 5}
    assert set(made.control_tokens()) == {"<|fim_prefix|>", "<|fim_pad|>", "<|repo_name|>"}
    assert made.middle_ids == {"fim_pre": 3, "fim_pad": 4, "fim_rep": 5}
    named = make_tokenizer("llama", tokens, eos_token_id=2, fim_pre_token_id=1, **BARE)
    assert named.middle_ids["fim_pre"] == 1


def test_end_of_message_does_not_end_a_turn_with_calls(make_tokenizer: MakeTokenizer) -> None:
    texts = ["<|end|>", "<|return|>", "<|call|>", "<|channel|>"]
    made = make_tokenizer("llama", [(text, CONTROL) for text in texts], eos_token_id=1, **BARE)
    assert made.eog_ids == {1, 2}
    assert set(made.control_tokens()) == set(texts)
    without = make_tokenizer("llama", ["x", ("<|end|>", CONTROL)], eos_token_id=1, **BARE)
    assert without.eog_ids == {1}


def test_ends_are_control_tokens_whatever_the_file_says(make_tokenizer: MakeTokenizer) -> None:
    tokens: list[Token] = [
        "a",
        "<",
        "|im_end|>",
        ("<|im_end|>", USER_DEFINED),
        ("</s>", NORMAL, 9.0),
    ]
    made = make_tokenizer("llama", tokens, eos_token_id=4, **BARE)
    assert made.token_type(3) is made.token_type(4) is CONTROL
    assert made.encode("a<|im_end|>", parse_special=True) == [0, 3]
    assert 3 not in made.encode("a<|im_end|>")


@pytest.mark.parametrize(
    ("kind", "bos", "eos"),
    [
        ("llama", 1, 2),
        ("gpt2", 11, 11),
        ("bert", None, None),
        ("t5", None, 1),
        ("rwkv", None, None),
    ],
)
def test_ids_a_kind_is_known_for(
    make_tokenizer: MakeTokenizer, kind: str, bos: int | None, eos: int | None
) -> None:
    made = make_tokenizer(kind, [chr(97 + i) for i in range(20)], merges=["a b"])
    assert (made.bos_id, made.eos_id) == (bos, eos)


def test_a_named_id_outside_the_vocabulary_counts_as_none(make_tokenizer: MakeTokenizer) -> None:
    made = make_tokenizer("llama", list("abc"), bos_token_id=7, eos_token_id=3)
    assert (made.bos_id, made.eos_id) == (1, 2)
    glm = make_tokenizer("gpt2", list("abcdefghijklmnop"), merges=["a b"], pre="chatglm-bpe")
    assert (glm.bos_id, glm.eos_id) == (None, 11)
