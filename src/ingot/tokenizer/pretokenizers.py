r"""Pre-tokenizers of byte-level vocabularies: one line per name in `tokenizer.ggml.pre`.

In: a name. Out: the patterns that split text into words, each applied to the pieces of the one
before (their syntax: native/tokenizer/pattern_parser.cpp), and other facts of the name. The
patterns are llama.cpp's, even if they differ from what a model was trained with: `tekken`, `gpt-4o`
and similar ones treat any letter beyond ASCII as both upper and lower case, and marks not as
letters; `kimi-k2`, `youtu` and `tiny_aya` ignore case.
"""

import warnings
from dataclasses import dataclass

from ingot.errors import TokenizerError


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The patterns and defaults of one pre-tokenizer."""

    passes: tuple[str, ...]
    # A word that is a token stays whole, whatever the merges say.
    whole_words: bool = False
    # The default if the file does not say whether texts start with a BOS token.
    add_bos: bool = False
    # Whether id 11 is the BOS token of a file without one, as for other BPE vocabularies.
    default_bos: bool = True


_APOSTROPHE = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_APOSTROPHE}|{_WORDS}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_QWEN2 = rf"{_APOSTROPHE}|{_WORDS}|\p{{N}}|{_MARKS}|{_SPACES}"
_QWEN35 = (
    rf"{_APOSTROPHE}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)


def _cased(letters: str, tail: str) -> str:
    """Words of upper-case then lower-case letters, and upper-case words with any ending."""
    head, upper, lower = r"[^\r\n\p{L}\p{N}]?", rf"[{letters}&&[^a-z]]", rf"[{letters}&&[^A-Z]]"
    return f"{head}{upper}*{lower}+{tail}|{head}{upper}+{lower}*{tail}"


def _gpt4o(letters: str, tail: str, digits: str) -> str:
    return rf"{_cased(letters, tail)}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_GPT4O = _gpt4o(r"\p{L}", rf"{_APOSTROPHE}?", r"\p{N}{1,3}")
# \p{Lu} and its like all mean \p{L}, so both halves of a cased word are the same class.
_LETTER_MARK_WORDS = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{_APOSTROPHE}?"

_ASCII_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK3 = (
    rf"{_ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_SPARK = (
    rf"{_ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
)
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Letters that have a case.
_DEEPSEEK_LETTERS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_SIGNS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f"
    "\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f"
    "\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+"
    "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    f"|[\u3105-\u312f]+|{_CJK}"
)
_HAN = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\U0002ceb0-\U0002ebef\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_KIMI = (
    rf"[{_HAN}]+|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}&&[^{_HAN}]]+{_APOSTROPHE}?"
    rf"|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_JAIS2_SPACES = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
_JAIS2 = (
    rf"{_APOSTROPHE}|{_WORDS}|\p{{N}}{{1,3}}|{_MARKS}"
    rf"|\s*[\r\n]+|{_JAIS2_SPACES}|\s{{1,2}}(?!\S)|\s"
)
_BAILING = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    rf"|{_MARKS}|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = rf"{_APOSTROPHE}|{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_EXAONE_MOE = (
    rf"{_APOSTROPHE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}(?:\p{{M}}| ?\p{{L}})*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_MINICPM5 = rf"{_APOSTROPHE}|{_WORDS}|\p{{N}}+|{_MARKS}|{_SPACES}"
_UFAKZEKA = rf"{_WORDS}|\p{{N}}|{_MARKS}|{_SPACES}"
_LETTER_MARKS = rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"

_LLAMA3_KIND = PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True)
_QWEN2_KIND = PreTokenizer((_QWEN2,))
_GPT2_KIND = PreTokenizer((_GPT2,))
_GPT4O_KIND = PreTokenizer((_GPT4O,))
_DIGITS_KIND = PreTokenizer((r"\p{N}", _GPT2))
_DEEPSEEK3_KIND = PreTokenizer((r"\p{N}{1,3}", _CJK, _DEEPSEEK3))
_BAILING_KIND = PreTokenizer((_BAILING,))
_TINY_AYA = rf"{_LETTER_MARK_WORDS}|\p{{N}}{{1,3}}{_LETTER_MARKS}"
_TINY_AYA_KIND = PreTokenizer(("@thousands", _TINY_AYA))

_TABLE: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": _GPT2_KIND,
    "phi-2": _GPT2_KIND,
    "jina-es": _GPT2_KIND,
    "jina-de": _GPT2_KIND,
    "jina-v1-en": _GPT2_KIND,
    "jina-v2-es": _GPT2_KIND,
    "jina-v2-de": _GPT2_KIND,
    "jina-v2-code": _GPT2_KIND,
    "roberta-bpe": _GPT2_KIND,
    "gigachat": _GPT2_KIND,
    "a.x-4.0": _GPT2_KIND,
    "mellum": _GPT2_KIND,
    "modern-bert": _GPT2_KIND,
    "exaone4": _GPT2_KIND,
    "mpt": _GPT2_KIND,
    "olmo": _GPT2_KIND,
    "jais": _GPT2_KIND,
    "trillion": _GPT2_KIND,
    "granite-docling": _GPT2_KIND,
    "llama-bpe": _LLAMA3_KIND,
    "llama3": _LLAMA3_KIND,
    "llama-v3": _LLAMA3_KIND,
    "falcon3": _LLAMA3_KIND,
    "falcon-h1": _LLAMA3_KIND,
    "pixtral": _LLAMA3_KIND,
    "midm-2.0": _LLAMA3_KIND,
    "lfm2": _LLAMA3_KIND,
    "jina-v5-nano": _LLAMA3_KIND,
    "dbrx": PreTokenizer((_LLAMA3,)),
    "smaug-bpe": PreTokenizer((_LLAMA3,)),
    "chatglm-bpe": PreTokenizer((_LLAMA3,), default_bos=False),
    "glm4": PreTokenizer((_LLAMA3,), default_bos=False),
    "jais-2": PreTokenizer((_JAIS2,)),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _MINICPM5), whole_words=True),
    "qwen2": _QWEN2_KIND,
    "deepseek-r1-qwen": _QWEN2_KIND,
    "kormo": _QWEN2_KIND,
    "f2llmv2": _QWEN2_KIND,
    "megrez": _QWEN2_KIND,
    "stablelm2": _QWEN2_KIND,
    "hunyuan": _QWEN2_KIND,
    "solar-open": _QWEN2_KIND,
    "grok-2": _QWEN2_KIND,
    "qwen35": PreTokenizer((_QWEN35,)),
    "laguna": PreTokenizer((r"[^\n]+|[\n]+", _QWEN2)),
    "ufakzeka": PreTokenizer((_UFAKZEKA,)),
    "deepseek-llm": PreTokenizer(
        (
            "[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            _DEEPSEEK_SIGNS,
            r"\s+$",
            _DEEPSEEK_CJK,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")),
    "deepseek-v3": _DEEPSEEK3_KIND,
    "hunyuan-dense": _DEEPSEEK3_KIND,
    "joyai-llm": _DEEPSEEK3_KIND,
    "hy_v4": _DEEPSEEK3_KIND,
    "spark2_5": PreTokenizer((r"\p{N}{1,3}", _CJK, _SPARK, r"\p{N}")),
    "youtu": PreTokenizer(
        (_YOUTU_SCRIPTS, rf"{_LETTER_MARK_WORDS}|\p{{N}}{_LETTER_MARKS}"), whole_words=True
    ),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "starcoder": _DIGITS_KIND,
    "refact": _DIGITS_KIND,
    "command-r": _DIGITS_KIND,
    "smollm": _DIGITS_KIND,
    "codeshell": _DIGITS_KIND,
    "exaone": _DIGITS_KIND,
    "minerva": _DIGITS_KIND,
    "minerva-7b": _DIGITS_KIND,
    "mellum2": _DIGITS_KIND,
    "poro": PreTokenizer((_BLOOM,)),
    "poro-chat": PreTokenizer((_BLOOM,)),
    "bloom": PreTokenizer((_BLOOM,)),
    "gpt3-finnish": PreTokenizer((_BLOOM,)),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
    "tekken": PreTokenizer((_gpt4o(r"\p{L}", "", r"\p{N}"),), whole_words=True, add_bos=True),
    "chameleon": PreTokenizer(
        (
            r"<sentinel:[0-9]+>",
            r"IMGIMG[A-I]{1,4}Z",
            r"[\t\n]|    |  ",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            _GPT2,
        ),
        add_bos=True,
    ),
    "gpt-4o": _GPT4O_KIND,
    "gpt-oss": _GPT4O_KIND,
    "o200k": _GPT4O_KIND,
    "llama4": _GPT4O_KIND,
    "kanana2": _GPT4O_KIND,
    "talkie": _GPT4O_KIND,
    "minimax-m2": _GPT4O_KIND,
    "granite-embed-multi-97m": PreTokenizer(
        (_gpt4o(r"\p{L}\p{M}", rf"{_APOSTROPHE}?", r"\p{N}{1,3}"),), whole_words=True
    ),
    "tiny_aya": _TINY_AYA_KIND,
    "cohere2moe": _TINY_AYA_KIND,
    "kimi-k2": PreTokenizer((_KIMI,)),
    "superbpe": PreTokenizer((r"\p{N}+", "@thousands-ascii")),
    "bailingmoe": _BAILING_KIND,
    "bailingmoe2": _BAILING_KIND,
    "llada-moe": _BAILING_KIND,
    "seed-coder": PreTokenizer((_SEED,)),
    "afmoe": PreTokenizer(("@thousands", _AFMOE_SCRIPTS, _DEEPSEEK3)),
    "exaone-moe": PreTokenizer((_EXAONE_MOE,)),
}

# Byte-level in name only: they merge characters, which this tokenizer does not.
_RAW = frozenset({"gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace"})


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of a name; the default one, with a warning, if the name is unknown."""
    if name in _RAW:
        raise TokenizerError(f"the pre-tokenizer {name!r} works on characters; it is not supported")
    if name not in _TABLE:
        warnings.warn(
            f"unknown pre-tokenizer {name!r}: the default one is used, "
            "which may differ from the one of the model",
            stacklevel=2,
        )
        return _TABLE["default"]
    return _TABLE[name]


# Other spellings of the same in the files of `tokenizers`.
_SPELLINGS = (
    (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", _APOSTROPHE),
    (r"(?i:[sdmt]|ll|ve|re)", r"(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"),
    (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{L}&&[^a-z]]"),
    (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{L}&&[^A-Z]]"),
    (r"[^\r\n\p{L}\p{N}]?+\p{L}", r"[^\r\n\p{L}\p{N}]?\p{L}"),
    (r"[^\s\p{L}\p{N}]++", r"[^\s\p{L}\p{N}]+"),
    (r"\"", '"'),
    (r"\/", "/"),
    ("\r", r"\r"),
    ("\n", r"\n"),
)
GPT2_PATTERN, DIGIT_PATTERN = _GPT2, r"\p{N}"


def _spelled(pattern: str) -> str:
    for other, ours in _SPELLINGS:
        pattern = pattern.replace(other, ours)
    return pattern


def name_of(passes: tuple[str, ...], *, whole_words: bool) -> str | None:
    """The name of the pre-tokenizer with these patterns; None if there is none.

    One that treats whole words as wanted is preferred.
    """
    wanted = tuple(map(_spelled, passes))
    found = [name for name, kind in _TABLE.items() if tuple(map(_spelled, kind.passes)) == wanted]
    exact = [name for name in found if _TABLE[name].whole_words == whole_words]
    return next(iter(exact or found), None)
