"""Texts for tokenizer benchmarks, from a seed: ordinary documents and adversarial input."""

import random
from collections.abc import Callable

VOWELS, CONSONANTS = "aaeeeiioou", "bcddffghhklllmmnnnnpqrrrsssttttvwxyz"
ENDINGS = ("", "", "", "s", "ed", "ing", "ly", "er", "tion", "ment", "'s", "n't")
KEYWORDS = (
    "if",
    "for",
    "return",
    "def",
    "class",
    "import",
    "while",
    "else",
    "None",
    "const",
    "int",
)
ALPHABETS = (
    (0x0430, 0x044F, 7, " "),  # Cyrillic
    (0x03B1, 0x03C9, 6, " "),  # Greek
    (0x05D0, 0x05EA, 5, " "),  # Hebrew
    (0x0627, 0x064A, 5, " "),  # Arabic
    (0x0905, 0x0939, 5, " "),  # Devanagari
    (0xAC00, 0xD7A3, 3, " "),  # Hangul
    (0x3042, 0x3093, 6, ""),  # Hiragana
    (0x4E00, 0x6FFF, 4, ""),  # Han
)
EMOJI = "😀😂🦙🚀🎉👍❤🔥✨🌍"
ADVERSARIAL = ("a letter", "spaces", "emoji", "random bytes")


class Lexicon:
    """A made-up language: words drawn again and again with the skew of a real one."""

    def __init__(self, rng: random.Random, size: int = 20_000) -> None:
        self.rng = rng
        self.words = [self._word() for _ in range(size)]

    def _word(self) -> str:
        syllables = range(self.rng.choice((1, 1, 2, 2, 3, 4)))
        sounds = (self.rng.choice(CONSONANTS) + self.rng.choice(VOWELS) for _ in syllables)
        return "".join(sounds) + self.rng.choice(ENDINGS)

    def word(self) -> str:
        """Draw a word, the first of the list far more often than the last."""
        return self.words[int(len(self.words) * self.rng.random() ** 4)]


def prose(rng: random.Random, lexicon: Lexicon) -> str:
    words = [lexicon.word() for _ in range(rng.randint(4, 22))]
    words[rng.randrange(len(words))] += rng.choice(
        (",", ",", ";", " -", f" {rng.randint(0, 9999)}")
    )
    return " ".join(words).capitalize() + rng.choice((". ", ". ", "? ", "!\n\n", ".\n"))


def code(rng: random.Random, lexicon: Lexicon) -> str:
    indent = " " * 4 * rng.randint(0, 4)
    name, other = lexicon.word(), lexicon.word()
    return indent + rng.choice(
        (
            f"{rng.choice(KEYWORDS)} {name}_{other}({other}, {rng.randint(0, 255)}):\n",
            f"self.{name} = {other}[{rng.randint(0, 99)}] + 0x{rng.randint(0, 1 << 32):08x}\n",
            f'{name.upper()}: "{other} {lexicon.word()}",  # {lexicon.word()}\n',
            f"{name}.{other}(lambda x: x != {rng.random():.4f})\n\n",
        )
    )


def multilingual(rng: random.Random, lexicon: Lexicon) -> str:
    low, high, length, gap = rng.choice(ALPHABETS)
    span = high - low
    words = []
    for _ in range(rng.randint(5, 20)):
        letters = range(rng.randint(1, length))
        words.append("".join(chr(low + int(span * rng.random() ** 2)) for _ in letters))
    return gap.join(words) + rng.choice(
        (". ", "。", "! ", f" {lexicon.word()} ", rng.choice(EMOJI))
    )


KINDS: dict[str, Callable[[random.Random, Lexicon], str]] = {
    "prose": prose,
    "code": code,
    "multilingual": multilingual,
}


def documents(kind: str, megabytes: float, seed: int, size: int = 32_768) -> list[str]:
    """Make documents of about `size` bytes that hold `megabytes` together."""
    rng = random.Random(f"{kind} {seed}")
    lexicon, make = Lexicon(rng), KINDS[kind]
    made: list[str] = []
    for _ in range(max(1, round(megabytes * 1e6 / size))):
        parts: list[str] = []
        length = 0
        while length < size:
            parts.append(make(rng, lexicon))
            length += len(parts[-1].encode())
        made.append("".join(parts))
    return made


def adversarial(kind: str, size: int, seed: int) -> bytes:
    """Return `size` bytes (to the last whole character) without anything to split at."""
    if kind == "random bytes":
        return random.Random(seed).randbytes(size)
    unit = {"a letter": "a", "spaces": " ", "emoji": "🦙"}[kind].encode()
    return unit * (size // len(unit))
