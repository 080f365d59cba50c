"""Texts that are hard for tokenizers, from a seed: the same seed gives the same texts anywhere.

`texts(seed, count, vocabulary, special)` gives UTF-8 bytes and, in its last part, bytes that are
not UTF-8. `vocabulary` is the bytes of the vocabulary's tokens and `special` the texts it treats
as a whole: strings made of them meet far more merges than any made without looking. It knows
nothing of any tokenizer.
"""

import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\v", "\f", "\x85", "\xa0"]
SPACES += ["\u1680", "\u2003", "\u2009", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f"]
SPACES += ["\u3000", "\ufeff", "\u180e", " \n", "\n ", "\t\n\t", " \u3000 "]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "’s", "'ſ", "'x", "''s", "'"]
WORDS = ["I", "you", "we", "they", "Hello", "World", "naïve", "Straße", "İstanbul", "ﬁn", "ǅ"]
WORDS += ["the", "internationalization", "McDonald", "iPhone", "HTTPServer", "x86_64", "ΣΊΣΥΦΟΣ"]
WORDS += [
    "你好世界",
    "こんにちは",
    "カタカナ",
    "한국어",
    "россия",
    "שלום",
    "مرحبا",
    "नमस्ते",
    "ไทย",
    "ខ្មែរ",
]
NUMBERS = ["0", "7", "42", "123", "1234", "3.14159", "1e-10", "1,234,567.89", "0x1F", "2026-01-31"]
NUMBERS += [
    "٣٤٥",
    "१२३",
    "Ⅷ",
    "½",
    "²³",
    "①②",
    "𝟘𝟙",
    "一二三",
    "10%",
    "1st",
    "v2.0.1",
    "+1 (555) 010",
]
CODE = [
    "def f(x):\n    return x**2\n",
    "if (a && b || !c) { return; }\n",
    "\t\tfor(;;) ++i;\n",
    "#!/bin/sh\n",
]
CODE += [
    'printf("%d\\n", n);',
    "<div class='x'>&nbsp;</div>",
    "SELECT * FROM t WHERE a<>b;",
    "λx.x",
    "=>",
    "::",
]
CODE += [
    "        ",
    "{{}}",
    "[[0]]",
    "/* c */",
    "// c\n",
    "a->b",
    "x != y",
    "###",
    "```",
    '"""',
    "$HOME",
    "@x",
]
URLS = [
    "https://example.com/a/b?c=1&d=%20#e",
    "user@mail.example.org",
    "C:\\dir\\file.txt",
    "/usr/lib/",
]
URLS += ["http://[::1]:8080/", "data:text/plain;base64,SGVsbG8=", "www.例え.jp", "git@host:o/r.git"]
EMOJI = ["😀", "🦙", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇫🇷🇯🇵", "1️⃣", "❤️‍🔥", "☃", "🧑🏿‍🚀", "⌚️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + list("…–—“”‘’«»¿¡§¶•、。「」！？～・·")
CONTROLS = [chr(c) for c in (*range(32), 127, *range(0x80, 0xA0), 0xAD, 0x200D, 0x200E, 0x2060)]
SCRIPTS = [(0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F)]
SCRIPTS += [(0x5D0, 0x5EA), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1780, 0x17FF)]
SCRIPTS += [(0x10A0, 0x10FF), (0x1E00, 0x1FFF), (0x3040, 0x30FF), (0x4E00, 0x9FFF)]
SCRIPTS += [(0xAC00, 0xD7A3), (0xFB00, 0xFDFF), (0xFF00, 0xFFEF), (0x10400, 0x1044F)]
SCRIPTS += [(0x1D400, 0x1D7FF), (0x20000, 0x2A6DF), (0x1F300, 0x1FAFF)]
MARKS = [chr(c) for c in (*range(0x300, 0x370), 0x591, 0x64B, 0x93C, 0x94D, 0xE31, 0x20DD, 0x3099)]
MARKS += ["\u200d", "\ufe0f", "\ufe0e", "\U000e0101", "\u1ab0"]
NOT_UTF8 = [b"\x80", b"\xbf", b"\xc0", b"\xc1", b"\xc3", b"\xe2", b"\xe2\x96", b"\xf0", b"\xf0\x9f"]
NOT_UTF8 += [b"\xf0\x9f\x98", b"\xf5", b"\xf8", b"\xfc", b"\xfe", b"\xff", b"\xc0\x80", b"\xc1\xbf"]
NOT_UTF8 += [b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf"]
NOT_UTF8 += [
    b"\xed\xa0\x80",
    b"\xed\xb0\x80",
    b"\xed\xa0\xbd\xed\xb8\x80",
    b"\xfe\xff",
    b"\xff\xfe",
]


@dataclass(frozen=True, slots=True)
class Source:
    """The random numbers and the vocabulary the texts are made from."""

    rng: random.Random
    vocabulary: Sequence[bytes]
    special: Sequence[bytes]


Maker = Callable[[Source], bytes]


def any_character(rng: random.Random) -> str:
    """Return a code point of any plane: assigned or not, private, a non-character; no surrogate."""
    top = rng.choice((0x7F, 0x7FF, 0xFFFF, 0xFFFF, 0x1FFFF, 0x1FFFF, 0x3FFFF, 0x10FFFF))
    point = rng.randint(0, top)
    return chr(point) if not 0xD800 <= point <= 0xDFFF else chr(point - 0x800)


def mix(
    source: Source, *pools: Sequence[str], most: int = 12, glue: Sequence[str] = ("",)
) -> bytes:
    rng = source.rng
    parts = [rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, most))]
    return rng.choice(glue).join(parts).encode()


def planes(source: Source) -> bytes:
    return "".join(any_character(source.rng) for _ in range(source.rng.randint(1, 24))).encode()


def planes_between_words(source: Source) -> bytes:
    rng = source.rng
    around = ("", " ", "a", "1", "\n", "!", "  ", "'", "The", "_")
    parts = (rng.choice(around) + any_character(rng) for _ in range(rng.randint(1, 12)))
    return "".join(parts).encode()


def scripts(source: Source) -> bytes:
    rng = source.rng
    words = []
    for _ in range(rng.randint(1, 6)):
        low, high = rng.choice(SCRIPTS)
        words.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))))
    return rng.choice(("", " ", ", ", "-", "\u3000")).join(words).encode()


def marks(source: Source) -> bytes:
    rng = source.rng
    base = ("a", "E", "ñ", " ", "1", "ก", "क", "か", "😀", "\n")
    return "".join(
        rng.choice(base) + "".join(rng.choices(MARKS, k=rng.randint(0, 4)))
        for _ in range(rng.randint(1, 8))
    ).encode()


def contractions(source: Source) -> bytes:
    rng = source.rng
    text = "".join(
        rng.choice((*WORDS, "", " ", "\n")) + rng.choice(CONTRACTIONS)
        for _ in range(rng.randint(1, 6))
    )
    return rng.choice((str, str.upper, str.title, str.swapcase))(text).encode()


def whitespace(source: Source) -> bytes:
    return mix(source, SPACES, SPACES, WORDS, NUMBERS, PUNCTUATION)


def numbers(source: Source) -> bytes:
    rng = source.rng
    digits = "".join(rng.choices("0123456789", k=rng.randint(1, 30)))
    return mix(source, NUMBERS, [digits], [" ", ".", ",", "-"], most=6)


def prose(source: Source) -> bytes:
    return mix(
        source, WORDS, WORDS, NUMBERS, EMOJI, most=14, glue=(" ", " ", ", ", ".\n", "\u3000")
    )


def code(source: Source) -> bytes:
    return mix(source, CODE, CODE, URLS, SPACES, most=8)


def symbols(source: Source) -> bytes:
    return mix(source, PUNCTUATION, PUNCTUATION, SPACES, EMOJI, WORDS, most=20)


def controls(source: Source) -> bytes:
    return mix(source, CONTROLS, WORDS, SPACES, most=10)


def runs(source: Source) -> bytes:
    """One short piece again and again, seldom up to a few thousand characters."""
    rng = source.rng
    pool = rng.choice((WORDS, SPACES, NUMBERS, EMOJI, PUNCTUATION, CONTROLS, ["a", "aA", "é", "0"]))
    length = rng.choice((8, 16, 33, 64, 129, 257, 513, 2000))
    part = rng.choice(pool)
    return (
        part * (rng.randint(1, length) // len(part) + 1) + rng.choice(("", "b", " ", "\n"))
    ).encode()


def special_texts(source: Source) -> bytes:
    """Special tokens whole, cut, inside each other, and among words and spaces."""
    rng = source.rng
    parts = []
    for _ in range(rng.randint(1, 6)):
        text = rng.choice(source.special)
        cut = rng.randint(0, len(text))
        other = rng.choice(source.special)
        parts.append(
            rng.choice((text, text, text[:cut], text[cut:], text[:cut] + other + text[cut:]))
        )
        parts.append(rng.choice((*SPACES, *WORDS, "", "")).encode())
    return b"".join(parts).decode(errors="ignore").encode()


def token_texts(source: Source) -> bytes:
    """Tokens of the vocabulary one after the other: merges that compete for the same letters."""
    rng = source.rng
    parts = rng.choices(source.vocabulary, k=rng.randint(1, 10))
    return rng.choice((b"", b"", b" ")).join(parts).decode(errors="ignore").encode()


def token_overlaps(source: Source) -> bytes:
    """Cut tokens: prefixes and suffixes that nearly are tokens, repeated and changed in case."""
    rng = source.rng
    parts = []
    for _ in range(rng.randint(1, 8)):
        text = rng.choice(source.vocabulary).decode(errors="ignore")
        cut = rng.randint(0, len(text))
        parts.append(rng.choice((text[:cut], text[cut:], text.upper(), text.lower(), text[::-1])))
    return "".join(parts).encode()


def not_utf8(source: Source) -> bytes:
    """Cut, overlong and surrogate sequences, stray bytes, whole random bytes."""
    rng = source.rng
    if rng.random() < 0.3:
        return rng.randbytes(rng.randint(1, 24)).translate(PLANE_LIMIT)
    parts: list[bytes] = []
    for _ in range(rng.randint(1, 6)):
        parts.append(rng.choice(NOT_UTF8))
        parts.append(rng.choice((*WORDS, *SPACES, *EMOJI, "")).encode())
    rng.shuffle(parts)
    return b"".join(parts)


# Sequences that would stand for a code point above U+10FFFF have a separate test.
PLANE_LIMIT = bytes(0xF0 if byte in range(0xF4, 0xF8) else byte for byte in range(256))


@cache
def notable_characters() -> tuple[str, ...]:
    """Return every assigned character, one in sixteen of the large uniform blocks."""
    large = ("CJK UNIFIED", "HANGUL SYLLABLE", "TANGUT", "KHITAN", "NUSHU", "EGYPTIAN", "ANATOLIAN")
    large += ("CUNEIFORM", "CJK COMPATIBILITY", "YI SYLLABLE", "VAI SYLLABLE", "BAMUM")
    kept = []
    for point in range(0x110000):
        name = unicodedata.name(chr(point), "")
        if name and (point % 16 == 0 or not name.startswith(large)):
            kept.append(chr(point))
    return tuple(kept)


def every_character(rng: random.Random, count: int) -> Iterator[bytes]:
    """Yield texts that together hold every notable character, each between random neighbours."""
    around = ("", "", " ", "a", "1", "\n", "!", "A", "é")
    characters = list(notable_characters())
    rng.shuffle(characters)
    for first in range(count):
        yield "".join(rng.choice(around) + c for c in characters[first::count]).encode()


MAKERS: tuple[tuple[int, Maker], ...] = (
    (10, planes),
    (10, planes_between_words),
    (10, scripts),
    (6, marks),
    (6, contractions),
    (10, whitespace),
    (6, numbers),
    (6, prose),
    (8, code),
    (8, symbols),
    (5, controls),
    (3, runs),
    (10, special_texts),
    (16, token_texts),
    (12, token_overlaps),
    (8, not_utf8),
)


def texts(
    seed: int, count: int, vocabulary: Sequence[bytes], special: Sequence[bytes]
) -> Iterator[bytes]:
    """Yield `count` texts: a fifth with every notable character, the rest the makers' by weight."""
    rng = random.Random(seed)
    source = Source(rng, [t for t in vocabulary if t], [t for t in special if t] or [b"<s>"])
    sweep = count // 5
    yield b""
    yield from every_character(rng, sweep)
    makers, weights = zip(*((maker, weight) for weight, maker in MAKERS), strict=True)
    for maker in rng.choices(makers, weights, k=count - sweep - 1):
        yield maker(source)
