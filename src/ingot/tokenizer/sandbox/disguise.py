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
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import groupby

from ingot.errors import ChatTemplateError

# Symbols like these have no case, are printable (`repr` leaves them alone), and are
# neither words, digits, quotes nor white space: as inert as the punctuation they stand for.
_STAND_INS = range(0x2800, 0x20000)
# Characters that JSON or `repr` would treat differently from a stand-in.
_NEVER_DISGUISED = frozenset("\"'\\")

Span = tuple[int, int]


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_symbol(character: str) -> bool:
    return character.isprintable() and not _is_word(character) and not character.isspace()


def _tree(texts: list[str]) -> str:
    """A pattern that finds the longest of sorted texts, in time that does not grow with them."""
    branches = [
        re.escape(first) + _tree([text[1:] for text in group])
        for first, group in groupby((text for text in texts if text), lambda text: text[0])
    ]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)})" + ("" if texts[0] else "?")


class ControlTokens:
    """The control tokens of a vocabulary, as text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(text for text in texts if text.strip())
        self._all = "\n".join(sorted(self.texts))
        self.punctuation = self._punctuation()

    def _punctuation(self) -> frozenset[str]:
        """Characters of which every control token has at least one."""
        found: set[str] = set()
        for text in self.texts:
            symbols = {c for c in text if _is_symbol(c)} - _NEVER_DISGUISED
            found |= symbols or {text.lstrip()[0]}
        return frozenset(found)

    def can_hold(self, word: str) -> bool:
        """Whether a control token could be made by writing something around a word."""
        return bool(word) and word in self._all

    def completed_after(self, literals: Iterable[str]) -> bool:
        """Whether a literal ends in the middle of a control token, before a word of it."""
        beginnings = {
            text[:end] for text in self.texts for end in range(1, len(text)) if _is_word(text[end])
        }
        sizes = {len(beginning) for beginning in beginnings}
        return any(literal[-size:] in beginnings for literal in literals for size in sizes)

    def find(self, text: str) -> Iterator[Span]:
        """Every place where a control token begins, with the end of the longest there."""
        if self.texts:
            yield from (match.span(1) for match in self._pattern.finditer(text))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"(?=({_tree(sorted(self.texts))}))")


class Disguise:
    """The stand-ins of one render."""

    __slots__ = ("_pairs", "_stand_in", "_tokens", "_words", "active")

    def __init__(
        self, tokens: ControlTokens, texts: list[str], template: str, words: frozenset[str]
    ) -> None:
        """Choose stand-ins for `texts`; `words` are those of them to disguise as a whole."""
        everything = "\n".join(texts)
        originals = {c for c in tokens.punctuation if c in everything}
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
        if text in self._words:
            text = self._stand_in[text[0]] + text[1:]
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

    def change(self, text: str, change: Callable[[str], str]) -> str:
        """Change the text as it was said, keeping the stand-ins where they are.

        Letters are let go: a stand-in has no case. Where the change moves characters, it
        is the disguised text that is changed.
        """
        said = self.lift(text)
        if said is text:
            return change(text)
        changed = change(said)
        if len(changed) != len(text):
            return change(text)
        marks = {stand_in for original, stand_in in self._pairs if not _is_word(original)}
        return "".join(a if a in marks else b for a, b in zip(text, changed, strict=True))

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
            return match[0] if original.isascii() else json.dumps(original)[1:-1]

        return re.sub(r"[^\x00-\x7f]", escape, text)

    def reveal(self, rendered: str) -> tuple[str, tuple[Span, ...]]:
        """The text with every stand-in swapped back, and where control tokens are not meant."""
        text = self.lift(rendered)
        if text is rendered:
            return text, ()
        marks = re.compile("[" + re.escape("".join(mark for _, mark in self._pairs)) + "]")
        spans = (span for span in self._tokens.find(text) if marks.search(rendered, *span))
        return text, tuple(spans)
