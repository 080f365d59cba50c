"""Placeholders: tell control tokens in messages apart from those that the template writes.

Control tokens are plain text until they are tokenized, so a message that contains `<|im_start|>`
must not look like the template's own. Before a render, the characters of a message that control
tokens consist of are replaced by placeholders: symbols that occur neither in the messages nor in
the template, one for each character. The template does not notice, because the sandbox compares,
searches and splits text as if it had the originals. After the render, the originals come back, and
a control token that had a placeholder is plain text, however the template trimmed, split, joined
or rewrote the text around it.

In: the texts of control tokens and the strings of a render. Out: strings with placeholders; then
the rendered text and its plain spans. It does not know messages or templates.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property

from ingot.errors import ChatTemplateError

# These symbols have no case, are printable (`repr` does not escape them), and are neither words,
# digits, quotes nor white space: as inert as the punctuation they replace.
_PLACEHOLDERS = range(0x2800, 0x20000)
# Characters that JSON or `repr` would treat differently from a placeholder.
_NEVER_REPLACED = frozenset("\"'\\")

# Characters to compare first: enough to rule out most places where no control token begins.
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
        self.punctuation = frozenset(symbols - _NEVER_REPLACED)
        # Tokens without punctuation: they are found only if a text contains them whole.
        self.words = frozenset(t for t in self.texts if self.punctuation.isdisjoint(t))

    def can_hold(self, word: str) -> bool:
        """Whether text around a word could complete a control token."""
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
        """Whether a control token begins with this part and is longer."""
        place = bisect_right(self._sorted, part)
        return place < len(self._sorted) and self._sorted[place].startswith(part)

    @cached_property
    def _heads(self) -> tuple[re.Pattern[str], dict[str, list[int]]]:
        """The beginnings of control tokens, and the lengths of the tokens, longest first."""
        size = min(_HEAD, *map(len, self.texts))
        heads: dict[str, set[int]] = {}
        for text in self.texts:
            heads.setdefault(text[:size], set()).add(len(text))
        pattern = re.compile("|".join(map(re.escape, heads)))
        return pattern, {head: sorted(sizes, reverse=True) for head, sizes in heads.items()}

    def find(self, text: str) -> Iterator[Span]:
        """The span of the longest control token at every place where one begins."""
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


class Placeholders:
    """The placeholders of one render."""

    __slots__ = ("_pairs", "_placeholder", "_tokens", "_words", "active")

    def __init__(
        self, tokens: ControlTokens, texts: list[str], template: str, words: frozenset[str]
    ) -> None:
        """Choose placeholders for `texts`.

        `words` also get one although they have no punctuation, because a template could write the
        rest of a control token around them.
        """
        everything = "\n".join(texts)
        originals = {c for c in tokens.punctuation if c in everything}
        words |= {word for word in tokens.words if word in everything}
        originals |= {word[0] for word in words}
        taken = (everything, template, *tokens.punctuation)
        unused = (
            symbol
            for symbol in map(chr, _PLACEHOLDERS)
            if _is_symbol(symbol) and not any(symbol in text for text in taken)
        )
        # Sorted, so that the same render gives the same placeholders.
        self._pairs = tuple(zip(sorted(originals), unused, strict=False))
        if len(self._pairs) < len(originals):
            raise ChatTemplateError(
                "the messages use every symbol that could be a placeholder; shorten them"
            )
        self._placeholder = dict(self._pairs)
        self._tokens = tokens
        self._words = words
        self.active = bool(self._pairs)

    def substitute(self, text: str) -> str:
        """Replace the characters of control tokens by placeholders."""
        for word in self._words:
            if text.strip() == word or (word in self._tokens.words and word in text):
                text = text.replace(word, self._placeholder[word[0]] + word[1:])
        for original, placeholder in self._pairs:
            if original in self._tokens.punctuation and original in text:
                text = text.replace(original, placeholder)
        return text

    def original(self, text: str) -> str:
        """The text with its original characters."""
        for original, placeholder in self._pairs:
            if placeholder in text:
                text = text.replace(placeholder, original)
        return text

    def original_letters(self, text: str) -> str:
        """The text with its original letters, for a change of case."""
        for original, placeholder in self._pairs:
            if _is_word(original):
                text = text.replace(placeholder, original)
        return text

    def with_placeholders(self, characters: str) -> str:
        """Characters and their placeholders."""
        return characters + "".join(
            self._placeholder.get(character, "") for character in characters
        )

    def escaped(self, text: str, escapes: dict[str, str]) -> str:
        """Escape characters and their placeholders."""
        for original, escape in escapes.items():
            text = text.replace(original, escape)
            if original in self._placeholder:
                text = text.replace(self._placeholder[original], escape)
        return text

    def ascii(self, text: str) -> str:
        """Escape characters that are not ASCII, or whose original is not, as JSON does."""
        originals = {placeholder: original for original, placeholder in self._pairs}

        def escape(match: re.Match[str]) -> str:
            original = originals.get(match[0], match[0])
            return match[0] if "!" <= original <= "~" else json.dumps(original)[1:-1]

        return re.sub(r"[^\x00-\x7e]", escape, text)

    def restore(self, rendered: str) -> tuple[str, tuple[Span, ...]]:
        """The text with its original characters, and the spans that are not control tokens.

        A span covers only what came from a message: the rest may begin a token of the template.
        """
        text = self.original(rendered)
        if text is rendered:
            return text, ()
        marks = re.compile("[" + re.escape("".join(mark for _, mark in self._pairs)) + "]")
        replaced = (
            [m.start() for m in marks.finditer(rendered, *span)] for span in self._tokens.find(text)
        )
        return text, tuple((places[0], places[-1] + 1) for places in replaced if places)
