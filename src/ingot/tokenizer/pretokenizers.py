r"""How byte-level vocabularies cut text into words: one line per name in `tokenizer.ggml.pre`.

Comes in: a name. Goes out: the patterns, applied one after the other, each to the pieces the
one before left (their syntax: native/tokenizer/pattern_parser.cpp), and what else hangs on the
name. The patterns are those llama.cpp uses, also where they differ from what a model was
trained with: `tekken`, `gpt-4o` and their kin take any letter beyond ASCII for both upper and
lower case, and marks for no letters; `kimi-k2` has no case at all; `\p{S}` leaves out `~`;
`chameleon`, `youtu` and others see categories or exact characters, never both in one pattern.
"""

import warnings
from dataclasses import dataclass

from ingot.errors import TokenizerError


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """What a name stands for."""

    passes: tuple[str, ...]
    # A word that is a token is taken as it is, whatever the merges would make of it.
    whole_words: bool = False
    # Used when the file does not say whether texts start with a BOS token.
    add_bos: bool = False
    # Whether id 11 is the BOS token of a file that names none, as for other BPE vocabularies.
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
    """Words of capitals then small letters, and words of capitals with any ending."""
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
_CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-\ud7ff]+"
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"
    "Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_AFMOE_SCRIPTS = (
    "[一-\u9fff㐀-䶿豈-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟"
    "ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+"
)
_YOUTU_SCRIPTS = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-\u303f︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+"
_HAN = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\U0002ceb0-\U0002ebef\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_KIMI = (
    rf"[{_HAN}]+|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}&&[^{_HAN}]]+{_APOSTROPHE}?"
    rf"|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
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
    "llama3": _LLAMA3_KIND,
    "llama-v3": _LLAMA3_KIND,
    "llama-bpe": _LLAMA3_KIND,
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
            "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
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

# Byte-level in name only: they merge characters, which this kind does not do.
_RAW = frozenset({"gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace"})


def pre_tokenizer(name: str) -> PreTokenizer:
    """The entry of a name; of the default, with a warning, when the name is not known."""
    if name in _RAW:
        raise TokenizerError(f"the pre-tokenizer {name!r} works on characters; it is not supported")
    if name not in _TABLE:
        warnings.warn(
            f"unknown pre-tokenizer {name!r}: texts are cut the default way, "
            "which may not be how the model was trained",
            stacklevel=2,
        )
        return _TABLE["default"]
    return _TABLE[name]
