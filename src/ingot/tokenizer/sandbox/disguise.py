"""Keeps what a message says apart from what a template writes.

Control tokens are plain text until they are tokenized, so a message that says
`<|im_start|>` must not look like the template's own. Before a render the characters of
a message that control tokens are made of are swapped for stand-ins: symbols that occur
neither in the messages nor in the template, one for one. The template cannot tell,
because the sandbox compares, searches and cuts text as if it held the originals. After
the render the stand-ins are swapped back, and a control token in which one stood is
text, however the template trimmed, cut, joined or rewrote what was around it.

Comes in: the texts of control tokens, the strings of a render. Goes out: disguised
strings; then the text and its plain spans. It does not know messages or templates.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property

from ingot.errors import ChatTemplateError

# Symbols like these have no case, are printable (`repr` leaves them alone), and are
# neither words, digits, quotes nor white space: as inert as the punctuation they stand for.
_STAND_INS = range(0x2800, 0x20000)
# Characters that JSON or `repr` would treat differently from a stand-in.
_NEVER_DISGUISED = frozenset("\"'\\")

# Characters that sort out most places where no control token begins.
_HEAD = 3

Span = tuple[int, int]


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_symbol(character: str) -> bool:
    return character.isprintable() and not _is_word(character) and not character.isspace()


class ControlTokens:
    """The control tokens of a vocabulary, as text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(text for text in texts if text.strip())
        self._sorted = sorted(self.texts)
        self._all = "\n".join(self._sorted)
        symbols = {character for character in set(self._all) if _is_symbol(character)}
        self.punctuation = frozenset(symbols - _NEVER_DISGUISED)
        # Tokens without any: they are known only when a text holds them whole.
        self.words = frozenset(t for t in self.texts if self.punctuation.isdisjoint(t))

    def can_hold(self, word: str) -> bool:
        """Whether a control token could be made by writing something around a word."""
        return bool(word) and word in self._all and all(map(_is_word, word))

    def completed_after(self, literals: Iterable[str]) -> bool:
        """Whether a literal ends in the middle of a control token."""
        longest = max(map(len, self.texts), default=0)
        return any(
            self._begins(literal[-size:])
            for literal in literals
            for size in range(1, min(longest, len(literal) + 1))
        )

    def _begins(self, part: str) -> bool:
        """Whether a control token goes on after this part."""
        place = bisect_right(self._sorted, part)
        return place < len(self._sorted) and self._sorted[place].startswith(part)

    @cached_property
    def _heads(self) -> tuple[re.Pattern[str], dict[str, list[int]]]:
        """What tokens begin with, and the lengths of those that begin so, longest first."""
        size = min(_HEAD, *map(len, self.texts))
        heads: dict[str, set[int]] = {}
        for text in self.texts:
            heads.setdefault(text[:size], set()).add(len(text))
        pattern = re.compile("|".join(map(re.escape, heads)))
        return pattern, {head: sorted(sizes, reverse=True) for head, sizes in heads.items()}

    def find(self, text: str) -> Iterator[Span]:
        """Every place where a control token begins, with the end of the longest there."""
        if not self.texts:
            return
        pattern, sizes = self._heads
        start = -1
        while match := pattern.search(text, start + 1):
            start = match.start()
            for size in sizes[match[0]]:
                if text[start : start + size] in self.texts:
                    yield start, start + size
                    break


class Disguise:
    """The stand-ins of one render."""

    __slots__ = ("_pairs", "_stand_in", "_tokens", "_words", "active")

    def __init__(
        self, tokens: ControlTokens, texts: list[str], template: str, words: frozenset[str]
    ) -> None:
        """Choose stand-ins for `texts`.

        `words` are texts to disguise though they hold no punctuation, because a template
        could write the rest of a control token around them.
        """
        everything = "\n".join(texts)
        originals = {c for c in tokens.punctuation if c in everything}
        words |= {word for word in tokens.words if word in everything}
        originals |= {word[0] for word in words}
        taken = (everything, template, *tokens.punctuation)
        unused = (
            symbol
            for symbol in map(chr, _STAND_INS)
            if _is_symbol(symbol) and not any(symbol in text for text in taken)
        )
        # Sorted, so that the same render gives the same stand-ins.
        self._pairs = tuple(zip(sorted(originals), unused, strict=False))
        if len(self._pairs) < len(originals):
            raise ChatTemplateError("the messages use every symbol there is; shorten them")
        self._stand_in = dict(self._pairs)
        self._tokens = tokens
        self._words = words
        self.active = bool(self._pairs)

    def hide(self, text: str) -> str:
        """Swap what control tokens are made of for stand-ins."""
        for word in self._words:
            if text.strip() == word or (word in self._tokens.words and word in text):
                text = text.replace(word, self._stand_in[word[0]] + word[1:])
        for original, stand_in in self._pairs:
            if original in self._tokens.punctuation and original in text:
                text = text.replace(original, stand_in)
        return text

    def lift(self, text: str) -> str:
        """The text as it was said."""
        for original, stand_in in self._pairs:
            if stand_in in text:
                text = text.replace(stand_in, original)
        return text

    def letters(self, text: str) -> str:
        """The text with its letters as they were said, for a change of case."""
        for original, stand_in in self._pairs:
            if _is_word(original):
                text = text.replace(stand_in, original)
        return text

    def with_stand_ins(self, characters: str) -> str:
        """Characters, and what stands for them."""
        return characters + "".join(self._stand_in.get(character, "") for character in characters)

    def escaped(self, text: str, escapes: dict[str, str]) -> str:
        """Escape characters, also where a stand-in stands for one."""
        for original, escape in escapes.items():
            text = text.replace(original, escape)
            if original in self._stand_in:
                text = text.replace(self._stand_in[original], escape)
        return text

    def ascii(self, text: str) -> str:
        """Escape as JSON does whatever is not ASCII, or stands for something that is not."""
        originals = {stand_in: original for original, stand_in in self._pairs}

        def escape(match: re.Match[str]) -> str:
            original = originals.get(match[0], match[0])
            return match[0] if "!" <= original <= "~" else json.dumps(original)[1:-1]

        return re.sub(r"[^\x00-\x7e]", escape, text)

    def reveal(self, rendered: str) -> tuple[str, tuple[Span, ...]]:
        """The text with every stand-in swapped back, and where control tokens are not meant.

        Only what was said is marked: the rest of such a token may begin one of the template's.
        """
        text = self.lift(rendered)
        if text is rendered:
            return text, ()
        marks = re.compile("[" + re.escape("".join(mark for _, mark in self._pairs)) + "]")
        said = (
            [m.start() for m in marks.finditer(rendered, *span)] for span in self._tokens.find(text)
        )
        return text, tuple((places[0], places[-1] + 1) for places in said if places)
