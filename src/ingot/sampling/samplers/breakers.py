"""Sequence breakers: texts that no repetition reaches across.

Comes in: the tokens so far. Goes out: how many came after the last token in which a breaker
ended, wherever the borders of tokens lie. It does not know what the number is for.
"""

from collections.abc import Callable, Sequence

from ingot.arrays import Ints


class Breakers:
    """Looks for some texts from the end; remembers where, so that one more token is cheap."""

    def __init__(self, texts: Sequence[str], token_bytes: Callable[[int], bytes]) -> None:
        self._texts = [text.encode() for text in texts]
        self._reach = max((len(text) for text in self._texts), default=1) - 1
        self._token_bytes = token_bytes
        self._known: dict[int, bytes] = {}
        self.reset()

    def reset(self) -> None:
        """Forget the tokens."""
        self._length, self._since = 0, 0

    def clone(self) -> "Breakers":
        """Copy what is remembered."""
        copy = Breakers([], self._token_bytes)
        copy._texts, copy._reach, copy._known = self._texts, self._reach, self._known
        copy._length, copy._since = self._length, self._since
        return copy

    def tokens_since(self, token_ids: Ints, most: int) -> int:
        """How many tokens came after the last breaker, up to `most`."""
        length = len(token_ids)
        if length == self._length + 1 and self._length > 0:
            self._since = 0 if self._ends_at(token_ids, length - 1) else self._since + 1
        elif length != self._length:
            first = max(0, length - most)
            places = range(length - 1, first - 1, -1)
            found = next((i for i in places if self._ends_at(token_ids, i)), first - 1)
            self._since = length - 1 - found
        self._length = length
        return min(self._since, most)

    def within(self, token: int) -> bool:
        """Whether a token's own text holds a breaker."""
        own = self._text(token)
        return any(text in own for text in self._texts)

    def _ends_at(self, token_ids: Ints, place: int) -> bool:
        """Whether a breaker ends in the token at a place."""
        before = b""
        earlier = place
        while len(before) < self._reach and earlier > 0:
            earlier -= 1
            before = self._text(int(token_ids[earlier])) + before
        joined = before + self._text(int(token_ids[place]))
        return any(
            joined.find(text, max(0, len(before) - len(text) + 1)) >= 0 for text in self._texts
        )

    def _text(self, token: int) -> bytes:
        text = self._known.get(token)
        if text is None:
            text = self._known[token] = self._token_bytes(token)
        return text
