"""The tokenizer as a whole: what it says of itself, what it refuses, threads."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from small_vocabularies import MakeTokenizer, Token, byte_letters, byte_tokens, write_vocabulary

import ingot
from ingot.errors import GgufError, IngotError, TokenizerError
from ingot.gguf import GgufLoader, GgufWriter, ValueType
from ingot.tokenizer import Tokenizer, TokenType
from ingot.tokenizer.chat_template import ChatTemplate

CONTROL, NORMAL, UNKNOWN = TokenType.CONTROL, TokenType.NORMAL, TokenType.UNKNOWN
TOKENS: list[Token] = [
    ("<unk>", UNKNOWN),
    ("<s>", CONTROL),
    ("</s>", CONTROL),
    *byte_tokens(),
    "ab",
    "▁",
]


@pytest.fixture(scope="module")
def tokenizer(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer("llama", TOKENS, pre="default")


def test_what_it_says_of_itself(tokenizer: Tokenizer) -> None:
    assert (tokenizer.kind, tokenizer.pre) == ("llama", "default")
    assert tokenizer.vocab_size == len(TOKENS)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)
    assert tokenizer.eog_ids == {2}
    assert tokenizer.token_type(0) is UNKNOWN
    assert tokenizer.token_type(3) is TokenType.BYTE
    assert [tokenizer.is_control(id) for id in (0, 1, 2, 3)] == [True, True, True, False]
    assert tokenizer.control_tokens() == {"<s>": 1, "</s>": 2}
    assert tokenizer.token_bytes(1) == b"<s>"
    assert tokenizer.token_bytes(3 + 255) == b"\xff"
    assert "llama" in repr(tokenizer)
    assert str(len(TOKENS)) in repr(tokenizer)
    assert ingot.Tokenizer is Tokenizer


@pytest.mark.parametrize("text", [None, 5, ["a"], bytearray(b"a")])
def test_text_must_be_str_or_bytes(tokenizer: Tokenizer, text: object) -> None:
    with pytest.raises(TokenizerError, match="str or bytes"):
        tokenizer.encode(text)  # type: ignore[arg-type]
    with pytest.raises(TokenizerError, match="str or bytes"):
        tokenizer.encode_batch(["a", text])  # type: ignore[list-item]


@pytest.mark.parametrize(("text", "index"), [("\ud800", 0), ("né\udfffb", 2)])
def test_unpaired_surrogates_are_refused_with_their_index(
    tokenizer: Tokenizer, text: str, index: int
) -> None:
    reason = rf"unpaired surrogates \(invalid Unicode\) at index {index}"
    with pytest.raises(TokenizerError, match=reason):
        tokenizer.encode(text)
    with pytest.raises(TokenizerError, match=reason):
        tokenizer.encode_array(text)
    with pytest.raises(TokenizerError, match=reason):
        tokenizer.encode_batch(["a", text])


@pytest.mark.parametrize("id", [-1, len(TOKENS), 1 << 62, -(1 << 90)])
def test_what_is_no_id_is_refused(tokenizer: Tokenizer, id: int) -> None:
    with pytest.raises(TokenizerError, match=f"0 to {len(TOKENS) - 1}"):
        tokenizer.decode([1, id])
    for ask in (tokenizer.token_bytes, tokenizer.token_type, tokenizer.is_control):
        with pytest.raises(TokenizerError):
            ask(id)
    with pytest.raises(TokenizerError, match="integers, not str"):
        tokenizer.decode(["a"])  # type: ignore[list-item]


def test_ids_of_any_whole_number_type(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("hi")
    assert tokenizer.decode(np.array(ids)) == tokenizer.decode(tuple(ids)) == tokenizer.decode(ids)
    assert tokenizer.decode(iter(ids)) == tokenizer.decode(ids)
    assert tokenizer.decode([]) == ""


def test_a_batch_is_its_texts(tokenizer: Tokenizer) -> None:
    texts: Sequence[str | bytes] = ["ab", "", b"\xff", "né" * 1000, "<s>"] * 20
    for threads in (1, 2, 7, None):
        batch = tokenizer.encode_batch(texts, threads=threads)
        assert batch == [tokenizer.encode(text) for text in texts]
    bare = tokenizer.encode_batch(texts, add_special=False, parse_special=True)
    assert bare == [tokenizer.encode(text, False, True) for text in texts]
    assert tokenizer.encode_batch([]) == []


def test_an_array_is_the_list(tokenizer: Tokenizer) -> None:
    for text in ("ab", "", b"\xff", "né" * 40_000, "<s>"):
        for add_special, parse_special in ((True, False), (False, True)):
            array = tokenizer.encode_array(text, add_special, parse_special)
            assert array.dtype == np.int32
            assert array.tolist() == tokenizer.encode(text, add_special, parse_special)


def test_threads_share_one_tokenizer(make_tokenizer: MakeTokenizer) -> None:
    fresh = make_tokenizer("llama", TOKENS)
    texts = [f"text {n} ab" * (n % 50) for n in range(400)]
    expected = [fresh.encode(text) for text in texts]
    for _ in range(3):
        fresh = make_tokenizer("llama", TOKENS)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(fresh.encode, texts)) == expected


def test_it_outlives_the_loader(tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "v.gguf", "llama", TOKENS, {})
    tokenizer = Tokenizer.from_metadata(GgufLoader(path).metadata)
    path.unlink()
    assert tokenizer.decode(tokenizer.encode("hello"), skip_special=True) == " hello"


def test_characters_are_merged_line_by_line(make_tokenizer: MakeTokenizer) -> None:
    """By rank; a run of line ends that is a token stays whole; what is no token becomes bytes."""
    tokens: list[Token] = [*TOKENS, "a", "b", "▁a", "\n", "\n\n", "c"]
    made = make_tokenizer(
        "gemma4", tokens, merges=["▁ a", "a b", "b c"], bos_token_id=1, add_bos_token=False
    )

    def ids(*pieces: str) -> list[int]:
        texts = [token if isinstance(token, str) else token[0] for token in tokens]
        return [texts.index(piece) for piece in pieces]

    assert made.encode("ab ab") == [1, *ids("ab", "▁a", "b")]
    assert made.encode("a\n\nb\n") == [1, *ids("a", "\n\n", "b", "\n")]
    assert made.encode("bc") == [1, *ids("<0x62>", "<0x63>")], "a merge that makes no token"
    assert made.encode("é") == [1, *ids("<0xC3>", "<0xA9>")]
    text = " a  é\n\n\nab"
    assert made.decode(made.encode(text), skip_special=True) == text


@pytest.mark.parametrize("kind", ["gemma5", "plamo2", "none", "no_vocab", "whatever"])
def test_an_unknown_kind_is_named(make_tokenizer: MakeTokenizer, kind: str) -> None:
    with pytest.raises(TokenizerError, match=kind):
        make_tokenizer(kind, TOKENS)


def test_a_file_without_a_vocabulary(tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "none.gguf")
    writer.add("general.architecture", "llama")
    writer.write()
    with pytest.raises(TokenizerError, match="no vocabulary"):
        Tokenizer.from_gguf(tmp_path / "none.gguf")
    writer = GgufWriter(tmp_path / "empty.gguf")
    writer.add("tokenizer.ggml.model", "llama")
    writer.write()
    with pytest.raises(GgufError, match=r"tokenizer\.ggml\.tokens"):
        Tokenizer.from_gguf(tmp_path / "empty.gguf")


def test_an_unknown_pre_tokenizer_warns_once_and_cuts_the_default_way(
    make_tokenizer: MakeTokenizer,
) -> None:
    letters = byte_letters()
    with pytest.warns(UserWarning, match="brand-new") as caught:
        made = make_tokenizer("gpt2", letters, merges=["1 2"], pre="brand-new")
    assert len(caught) == 1
    assert made.encode("a") == [letters.index("a")]
    make_tokenizer("gpt2", letters, merges=["1 2"]).encode("a")  # no name: no warning


@pytest.mark.parametrize("pre", ["gemma4", "sarvam-moe", "whitespace"])
def test_a_pre_tokenizer_of_another_kind_is_refused(
    make_tokenizer: MakeTokenizer, pre: str
) -> None:
    with pytest.raises(TokenizerError, match=pre):
        make_tokenizer("gpt2", byte_letters(), merges=["a b"], pre=pre)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("key", "type"), [("token_type", ValueType.INT32), ("scores", ValueType.FLOAT32)]
)
def test_too_few_or_too_many_types_or_scores(
    key: str, type: ValueType, count: int, tmp_path: Path
) -> None:
    writer = GgufWriter(tmp_path / "model.gguf")
    writer.add("tokenizer.ggml.model", "llama")
    writer.add("tokenizer.ggml.tokens", ["a", "b", "c"])
    writer.add(f"tokenizer.ggml.{key}", [2] * count, type)
    writer.write()
    with (
        GgufLoader(tmp_path / "model.gguf") as file,
        pytest.raises(TokenizerError, match=f"{key} has {count} entries for 3 tokens"),
    ):
        ChatTemplate.from_metadata(file.metadata)


def test_a_framing_token_that_is_missing(make_tokenizer: MakeTokenizer) -> None:
    made = make_tokenizer("t5", ["a"], add_bos_token=True, eos_token_id=0)
    with pytest.raises(TokenizerError, match="bos_token_id"):
        made.encode("a")


def test_an_empty_vocabulary(make_tokenizer: MakeTokenizer) -> None:
    empty = make_tokenizer("llama", [], add_bos_token=False)
    assert empty.encode("anything") == []
    assert empty.vocab_size == 0
    assert empty.bos_id is None
    with pytest.raises(IngotError):
        empty.decode([0])


def test_the_first_of_equal_tokens_is_meant(make_tokenizer: MakeTokenizer) -> None:
    twice = make_tokenizer("llama", ["a", "b", "a"], add_bos_token=False, add_space_prefix=False)
    assert twice.encode("ab") == [0, 1]
    assert twice.token_bytes(2) == b"a"


@pytest.mark.parametrize(
    "kind", [TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED, TokenType.NORMAL]
)
def test_special_tokens_that_are_too_long(make_tokenizer: MakeTokenizer, kind: TokenType) -> None:
    """They would be looked for at every byte of a text: 70,000 of them took minutes."""
    made = make_tokenizer("llama", [*byte_tokens(), ("x" * 70_000, kind), "a"])
    if kind is TokenType.NORMAL:
        assert made.decode(made.encode("xxx", add_special=False)).endswith("xxx")
        return
    with pytest.raises(TokenizerError, match="token 256 is a special one of 70000 bytes"):
        made.encode("x" * 70_000, parse_special=True)
