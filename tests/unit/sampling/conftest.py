"""A vocabulary of letters for the tests of this folder."""

import pytest

from ingot.sampling import ChainBuilder
from ingot.tokenizer import Tokenizer, TokenType
from unit.tokenizer.small_vocabularies import byte_letters, write_vocabulary

MERGES = ["a b", "ab c", "Ġ a", ". Ċ", "x y", "Ã ©"]


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a byte-level vocabulary: the 256 bytes, some pairs, and two control tokens."""
    pairs = [merge.replace(" ", "") for merge in MERGES]
    tokens = [
        *byte_letters(),
        *pairs,
        ("<|end|>", TokenType.CONTROL),
        ("<call>", TokenType.CONTROL),
    ]
    path = tmp_path_factory.mktemp("sampling") / "letters.gguf"
    settings = {"merges": MERGES, "pre": "gpt-2", "eos_token_id": 256 + len(MERGES)}
    return Tokenizer.from_gguf(write_vocabulary(path, "gpt2", tokens, settings))


@pytest.fixture(scope="session")
def single_bytes(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a vocabulary of the 256 bytes and an end."""
    path = tmp_path_factory.mktemp("sampling") / "bytes.gguf"
    tokens = [*byte_letters(), ("<|end|>", TokenType.CONTROL), ("<call>", TokenType.CONTROL)]
    settings = {"merges": ["a b"], "pre": "gpt-2", "eos_token_id": 256}
    return Tokenizer.from_gguf(write_vocabulary(path, "gpt2", tokens, settings))


@pytest.fixture(scope="session")
def builder(letters: Tokenizer) -> ChainBuilder:
    """Return the builder of chains for that vocabulary."""
    return ChainBuilder(letters)
