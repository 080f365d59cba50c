"""A maker of tokenizers for the tests of this folder."""

from collections.abc import Sequence
from itertools import count

import pytest
from small_vocabularies import MakeTokenizer, Token, write_vocabulary

from ingot.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def make_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> MakeTokenizer:
    """Return a maker of tokenizers: a kind, tokens and what else the file says."""
    folder = tmp_path_factory.mktemp("vocabularies")
    numbers = count()

    def make(kind: str, tokens: Sequence[Token], **settings: object) -> Tokenizer:
        return Tokenizer.from_gguf(
            write_vocabulary(folder / f"{next(numbers)}.gguf", kind, tokens, settings)
        )

    return make
