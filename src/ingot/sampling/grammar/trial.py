"""A process in which grammars are tried before they are let into the one that serves.

This file is run as a program by trial_process.py. It reads a vocabulary, then one grammar after
the other, and answers what came of each. Every grammar is compiled in a fork, with limits that the
kernel enforces: whatever a grammar does to llguidance, only the fork ends. It imports nothing of
Ingot unless a grammar is GBNF. Messages are marshalled, since both ends run the same Python.
"""

import json
import marshal
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

_POLITENESS = 10  # below the threads that write texts
_THREAD_STACK = 2 << 20  # bytes that a thread has if the stack has no limit
_MESSAGE = 2000  # characters of a reason


class _Tokens:
    """The vocabulary as llguidance reads it; texts are cut greedily, which takes as long."""

    def __init__(self, tokens: list[bytes], special: list[int], end: int) -> None:
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = end
        self.bos_token_id = None
        unwritten = set(special)
        self._ids = {text: id for id, text in enumerate(tokens) if text and id not in unwritten}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: bytes) -> list[int]:
        return list(self._cut(text))

    def _cut(self, text: bytes) -> Iterator[int]:
        at = 0
        while at < len(text):
            sizes = range(min(self._longest, len(text) - at), 0, -1)
            size = next((n for n in sizes if text[at : at + n] in self._ids), 0)
            if size == 0:
                return
            yield self._ids[text[at : at + size]]
            at += size


def main(read: BinaryIO, write: BinaryIO) -> None:
    """Answer until nobody asks any more."""
    sys.path[:], tokens, special, ends = marshal.load(read)
    from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415 (by that path)

    os.nice(_POLITENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wrapper = TokenizerWrapper(_Tokens(tokens, special, ends[0]))
    vocabulary = LLTokenizer(wrapper, eos_token=ends)
    with suppress(EOFError):
        while True:
            asked = marshal.load(read)
            if asked["gbnf"]:
                import ingot.sampling.grammar.gbnf  # noqa: F401, PLC0415 (once, not in each fork)
            marshal.dump(_fork(asked, vocabulary), write)
            write.flush()


def _fork(asked: dict[str, Any], vocabulary: Any) -> dict[str, Any]:
    """What a trial comes to in a fork, or the signal that ended it."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _limit(asked)
            with os.fdopen(writable, "wb") as result:
                marshal.dump(_try(asked, vocabulary), result)
            status = 0
        finally:
            os._exit(status)
    os.close(writable)
    with os.fdopen(readable, "rb") as result:
        answer = result.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        return {"ended": code}
    told: dict[str, Any] = marshal.loads(answer)
    return told


def _limit(limits: dict[str, Any]) -> None:
    """Let the kernel end this process when it goes too far."""
    for timer, limit in ((signal.ITIMER_PROF, "seconds"), (signal.ITIMER_REAL, "patience")):
        signal.setitimer(timer, limits[limit])
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    half = (_THREAD_STACK if stack == resource.RLIM_INFINITY else stack) // 2
    with suppress(ValueError, OSError):  # what is enough here is enough in a thread over there
        resource.setrlimit(resource.RLIMIT_STACK, (half, half))
    with suppress(ValueError, OSError):  # not every system has both
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + limits["memory"]
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _try(asked: dict[str, Any], vocabulary: Any) -> dict[str, Any]:
    """Convert, validate and compile a grammar, and find the first tokens that it allows."""
    from llguidance import LLMatcher  # noqa: PLC0415 (loaded already)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = asked["text"]
    try:
        if asked["gbnf"]:
            text = _converted(text)
        failed, messages = LLMatcher.validate_grammar_with_warnings(text, vocabulary)
        if failed:
            return {"refused": messages[0].strip()[:_MESSAGE]}
        matcher = LLMatcher(vocabulary, text, log_level=0)
        matcher.compute_ff_tokens()
        matcher.compute_bitmask()
    except MemoryError:
        return {"ended": -signal.SIGABRT}  # as in Rust
    except (ValueError, RecursionError) as error:  # of GBNF
        return {"refused": str(error)[:_MESSAGE]}
    if matcher.is_error():
        return {"refused": matcher.get_error().partition("\n<state>")[0].strip()[:_MESSAGE]}
    unit = 1 if sys.platform == "darwin" else 1024
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"text": text, "grown": grown * unit}


def _converted(text: str) -> str:
    """The same list of grammars with the one in GBNF in Lark."""
    from ingot.sampling.grammar.gbnf import to_lark  # noqa: PLC0415 (loaded already)

    grammars = json.loads(text)
    body = grammars["grammars"][-1]
    body["lark_grammar"] = to_lark(body["lark_grammar"])
    return json.dumps(grammars)


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not speak in between
    main(sys.stdin.buffer, out)
