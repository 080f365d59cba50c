"""Vocabularies in tokenizer.json, the file of the `tokenizers` library.

In: the decoded file and the added tokens. Out: a `Vocabulary`. Its pre-tokenizer is known by its
patterns. Four kinds of models: byte-level BPE, SentencePiece's BPE, unigram and WordPiece.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from ingot.convert.vocabulary import AddedToken, Vocabulary, merged
from ingot.errors import ConversionError
from ingot.tokenizer.build import TokenType
from ingot.tokenizer.pretokenizers import DIGIT_PATTERN, GPT2_PATTERN, name_of

_SPACE = "\u2581"
_UNLIKELY = -10000.0  # the score of tokens that merges do not make


def read_tokenizer_json(described: Mapping[str, Any], added: list[AddedToken]) -> Vocabulary:
    """The vocabulary of a decoded tokenizer.json."""
    model = described.get("model")
    if not isinstance(model, Mapping):
        raise ConversionError("tokenizer.json has no model")
    kind = model.get("type") or ("BPE" if "merges" in model else None)
    if kind == "BPE":
        if is_byte_level(described):
            return _byte_bpe(described, model, added)
        return _sentencepiece_bpe(described, model, added)
    if kind == "Unigram":
        return _unigram(described, model, added)
    if kind == "WordPiece":
        return _word_piece(described, model, added)
    raise ConversionError(
        f"tokenizer.json has a model of type {kind!r}; BPE, Unigram and WordPiece are supported"
    )


def is_byte_level(described: Mapping[str, Any]) -> bool:
    """Whether tokens are written in the 256 characters that stand for bytes."""
    steps = [*_steps(described.get("pre_tokenizer")), *_steps(described.get("decoder"))]
    return any(step.get("type") == "ByteLevel" for step in steps)


def _steps(described: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a part of the file, which may be a sequence of them."""
    if not isinstance(described, Mapping):
        return
    if described.get("type") == "Sequence":
        for name in ("pretokenizers", "normalizers", "decoders", "processors"):
            for step in described.get(name) or ():
                yield from _steps(step)
    else:
        yield described


def _vocab(model: Mapping[str, Any]) -> dict[int, str]:
    vocab = model.get("vocab")
    if not isinstance(vocab, Mapping) or not all(
        type(id) is int and 0 <= id < 2**31 for id in vocab.values()
    ):
        raise ConversionError("tokenizer.json: the vocabulary must map texts to ids")
    return {id: text for text, id in vocab.items()}


def _pairs(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The merges; older files have texts with a space between, newer ones lists of two."""
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise ConversionError("tokenizer.json: the merges must be a list")
    found = []
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_text, pair)):
            raise ConversionError(f"tokenizer.json: {merge!r} is not a merge of two tokens")
        found.append((pair[0], pair[1]))
    return found


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _byte_bpe(
    described: Mapping[str, Any], model: Mapping[str, Any], added: list[AddedToken]
) -> Vocabulary:
    tokens, types = merged(_vocab(model), added, sentencepiece=False)
    return Vocabulary(
        kind="gpt2",
        pre=_pre_tokenizer(described, whole_words=bool(model.get("ignore_merges"))),
        tokens=tokens,
        types=types,
        # A space inside a token would be taken for the one between them.
        merges=[" ".join(part.replace(" ", "\u0120") for part in pair) for pair in _pairs(model)],
    )


def _pre_tokenizer(described: Mapping[str, Any], *, whole_words: bool) -> str:
    passes = []
    for step in _steps(described.get("pre_tokenizer")):
        kind = step.get("type")
        pattern = step.get("pattern")
        if kind == "Split" and isinstance(pattern, Mapping):
            passes.append(str(pattern.get("Regex", pattern.get("String"))))
        elif kind == "Digits" and step.get("individual_digits"):
            passes.append(DIGIT_PATTERN)
        elif kind == "ByteLevel":
            if step.get("use_regex", True):
                passes.append(GPT2_PATTERN)
        else:
            passes.append(f"<{kind}>")
    name = name_of(tuple(passes), whole_words=whole_words)
    if name is None:
        raise ConversionError(
            f"the pre-tokenizer of tokenizer.json has no name in GGUF files; its patterns are "
            f"{passes}"
        )
    return name


def _sentencepiece_bpe(
    described: Mapping[str, Any], model: Mapping[str, Any], added: list[AddedToken]
) -> Vocabulary:
    """SentencePiece merges the pair with the best score, so ranks of merges become scores."""
    tokens, types = merged(_vocab(model), added, sentencepiece=True)
    rank: dict[str, int] = {}
    pairs = _pairs(model)
    for number, pair in enumerate(pairs):
        rank.setdefault("".join(pair), number)
    scores = [-float(rank[token]) if token in rank else _UNLIKELY for token in tokens]
    return Vocabulary(
        kind="llama",
        tokens=tokens,
        types=types,
        scores=scores,
        character_merges=list(map(" ".join, pairs)),
        flags={"add_space_prefix": _adds_space(described)},
    )


def _adds_space(described: Mapping[str, Any]) -> bool:
    """Whether a text gets a space in front."""
    for step in _steps(described.get("normalizer")):
        if step.get("type") == "Prepend":
            return True
    for step in _steps(described.get("pre_tokenizer")):
        if step.get("type") == "Metaspace":
            scheme = step.get("prepend_scheme")
            return scheme != "never" if scheme else bool(step.get("add_prefix_space", True))
    return False


def _unigram(
    described: Mapping[str, Any], model: Mapping[str, Any], added: list[AddedToken]
) -> Vocabulary:
    listed = model.get("vocab")
    if not isinstance(listed, list) or not all(
        isinstance(item, list) and len(item) == 2 and _is_text(item[0]) for item in listed
    ):
        raise ConversionError("tokenizer.json: the vocabulary must list texts and scores")
    tokens, types = merged(dict(enumerate(text for text, _ in listed)), added, sentencepiece=True)
    unknown = model.get("unk_id")
    if type(unknown) is int and 0 <= unknown < len(types):
        types[unknown] = TokenType.UNKNOWN
    scores = [float(score) for _, score in listed]
    scores += [_UNLIKELY] * (len(tokens) - len(scores))
    charsmap = None
    for step in _steps(described.get("normalizer")):
        if step.get("type") == "Precompiled":
            try:
                charsmap = base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError):
                raise ConversionError("tokenizer.json: its charsmap is not base64") from None
    return Vocabulary(
        kind="t5",
        tokens=tokens,
        types=types,
        scores=scores,
        charsmap=charsmap,
        flags={"add_space_prefix": _adds_space(described), "remove_extra_whitespaces": True},
        specials={} if type(unknown) is not int else {"unknown": unknown},
    )


def _word_piece(
    described: Mapping[str, Any], model: Mapping[str, Any], added: list[AddedToken]
) -> Vocabulary:
    """Files mark the beginning of a word instead of its continuation."""
    tokens, types = merged(_vocab(model), added, sentencepiece=False)
    prefix = model.get("continuing_subword_prefix") or "##"
    marked = [
        token
        if kind is not TokenType.NORMAL
        else (token.removeprefix(prefix) if token.startswith(prefix) else _SPACE + token)
        for token, kind in zip(tokens, types, strict=True)
    ]
    flags = {}
    for step in _steps(described.get("normalizer")):
        if step.get("type") == "BertNormalizer":
            lower = bool(step.get("lowercase", True))
            accents = step.get("strip_accents")
            flags = {
                "normalizer.lowercase": lower,
                "normalizer.strip_accents": lower if accents is None else bool(accents),
            }
    return Vocabulary(kind="bert", tokens=marked, types=types, flags=flags)
