"""Our ids beside llama.cpp's: what differs, cut down to the shortest text that still differs."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from llama_cpp_peer import PeerRun, Request

from ingot.tokenizer import Tokenizer

REPORTED = 6
LONGEST_WINDOW = 40


@dataclass(frozen=True, slots=True)
class Difference:
    """One text that the two read differently; `peer` is None where llama.cpp died on it."""

    request: Request
    ours: list[int]
    peer: list[int] | None

    def __str__(self) -> str:
        flags = f"add_special={self.request.add_special} parse_special={self.request.parse_special}"
        theirs = "died on this text" if self.peer is None else self.peer
        return (
            f"{readable(self.request.text)} {flags}\n  ours      {self.ours}\n  llama.cpp {theirs}"
        )


def readable(text: bytes) -> str:
    """Write a text so that it can be pasted into Python, as characters where it has them."""
    try:
        return ascii(text.decode())
    except UnicodeDecodeError:
        return repr(text)


def encode(tokenizer: Tokenizer, request: Request, as_bytes: bool = False) -> list[int]:
    text: str | bytes = request.text
    if not as_bytes:
        with suppress(UnicodeDecodeError):
            text = request.text.decode()
    return tokenizer.encode(text, request.add_special, request.parse_special)


def differences(
    tokenizer: Tokenizer, model: Path, requests: Sequence[Request], folder: Path
) -> list[Difference]:
    """Encode every text on both sides at the same time; every third goes to ours as bytes."""
    with PeerRun([(model, requests)], folder) as peer:
        ours = [encode(tokenizer, r, as_bytes=i % 3 == 0) for i, r in enumerate(requests)]
        theirs = peer.ids()
    return [
        Difference(request, mine, other)
        for request, mine, other in zip(requests, ours, theirs, strict=True)
        if mine != other
    ]


def windows(text: bytes) -> Iterator[bytes]:
    """Yield the pieces of a text, shortest first; UTF-8 is cut between characters only."""
    try:
        characters = [c.encode() for c in text.decode()]
    except UnicodeDecodeError:
        characters = [bytes([b]) for b in text]
    starts = [0]
    for character in characters:
        starts.append(starts[-1] + len(character))
    for length in range(1, min(LONGEST_WINDOW, len(characters)) + 1):
        for low, high in zip(starts, starts[length:], strict=False):
            yield text[low:high]


def shortest(tokenizer: Tokenizer, model: Path, found: Difference, folder: Path) -> Difference:
    """Return the shortest part of a text that still differs, or the text itself."""
    parts = list(dict.fromkeys(windows(found.request.text)))
    requests = [replace(found.request, text=part) for part in parts]
    return next(iter(differences(tokenizer, model, requests, folder)), found)


def report(tokenizer: Tokenizer, model: Path, found: Sequence[Difference], folder: Path) -> str:
    """Describe a few of the differences, short and long, each once."""
    by_length = sorted(found, key=lambda difference: len(difference.request.text))
    few = by_length[:: -(-len(found) // REPORTED)]
    cut = (shortest(tokenizer, model, difference, folder) for difference in few)
    lines = dict.fromkeys(str(difference) for difference in cut)
    return f"{len(found)} texts differ in {model.name}, among them\n" + "\n".join(lines)
