"""The program of the process that tries grammars before the serving process compiles them.

trial_process.py runs this file. It reads a vocabulary, then one grammar after the other, and
answers with the result of each. Every grammar is compiled in a fork with limits that the kernel
enforces: whatever a grammar does to llguidance, only the fork ends. Windows has neither forks nor
such limits: there the process compiles a grammar itself and ends if that takes too long; its exit
status is the answer. It imports nothing of Ingot unless a grammar is GBNF. Messages are
marshalled, because both ends run the same Python.
"""

import faulthandler
import json
import marshal
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypedDict

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_NICE = 10  # lower priority than the threads that generate text
_THREAD_STACK = 2 << 20  # bytes of a thread's stack if the stack limit is infinite
_MAX_REASON = 2000  # characters


class TrialRequest(TypedDict):
    """A grammar to try, and its limits."""

    text: str  # as llguidance reads it
    gbnf: bool  # whether its body must be converted first
    seconds: float  # of CPU time
    patience: float  # seconds by the clock
    memory: int  # bytes


class TrialResult(TypedDict, total=False):
    """`text` and `grown` if the grammar passed; else why it was `refused`, or a signal."""

    text: str  # converted, if it was GBNF
    grown: int  # bytes of memory that it took
    refused: str
    ended: int  # the exit code of the fork: minus the signal that ended it


class _Tokens:
    """The vocabulary as llguidance reads it. Greedy tokenization takes as long as the real one."""

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
    """Answer requests until the other end closes the pipe."""
    sys.path[:], tokens, special, ends = marshal.load(read)
    from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415 (by that path)

    if sys.platform != "win32":
        os.nice(_NICE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wrapper = TokenizerWrapper(_Tokens(tokens, special, ends[0]))
    vocabulary = LLTokenizer(wrapper, eos_token=ends)
    with suppress(EOFError):
        while True:
            asked = marshal.load(read)
            if asked["gbnf"]:
                import ingot.sampling.grammar.gbnf  # noqa: F401, PLC0415 (once, not in each fork)
            marshal.dump(dict(_attempt(asked, vocabulary)), write)
            write.flush()


if sys.platform == "win32":

    def _attempt(asked: TrialRequest, vocabulary: "LLTokenizer") -> TrialResult:
        """The result of a trial in this process, which ends with status 1 if it takes too long."""
        # The watching thread needs no interpreter lock, which llguidance may hold all the time.
        faulthandler.dump_traceback_later(asked["patience"], exit=True, file=sys.stderr)
        try:
            return _try(asked, vocabulary)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _peak_memory() -> int:
        return 0  # not known here

else:

    def _attempt(asked: TrialRequest, vocabulary: "LLTokenizer") -> TrialResult:
        """The result of a trial in a fork, or the signal that ended it."""
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _limit(asked)
                with os.fdopen(writable, "wb") as result:
                    marshal.dump(dict(_try(asked, vocabulary)), result)
                status = 0
            finally:
                os._exit(status)
        os.close(writable)
        with os.fdopen(readable, "rb") as result:
            answer = result.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            return {"ended": code}
        result_of_child: TrialResult = marshal.loads(answer)
        return result_of_child

    def _limit(limits: TrialRequest) -> None:
        """Let the kernel end this process when it exceeds a limit."""
        signal.setitimer(signal.ITIMER_PROF, limits["seconds"])
        signal.setitimer(signal.ITIMER_REAL, limits["patience"])
        stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
        half = (_THREAD_STACK if stack == resource.RLIM_INFINITY else stack) // 2
        with suppress(ValueError, OSError):  # half of what a thread of the serving process has
            resource.setrlimit(resource.RLIMIT_STACK, (half, half))
        with suppress(ValueError, OSError):  # some systems lack /proc or the limit
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + limits["memory"]
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def _peak_memory() -> int:
        """The most bytes this process ever had."""
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _try(asked: TrialRequest, vocabulary: "LLTokenizer") -> TrialResult:
    """Convert, validate and compile a grammar, and compute its first mask."""
    from llguidance import LLMatcher  # noqa: PLC0415 (loaded already)

    before = _peak_memory()
    text = asked["text"]
    try:
        if asked["gbnf"]:
            text = _converted(text)
        failed, messages = LLMatcher.validate_grammar_with_warnings(text, vocabulary)
        if failed:
            return {"refused": messages[0].strip()[:_MAX_REASON]}
        matcher = LLMatcher(vocabulary, text, log_level=0)
        matcher.compute_ff_tokens()
        matcher.compute_bitmask()
    except MemoryError:
        return {"ended": -signal.SIGABRT}  # as in Rust
    except (ValueError, RecursionError) as error:  # from the conversion of GBNF
        return {"refused": str(error)[:_MAX_REASON]}
    if matcher.is_error():
        return {"refused": matcher.get_error().partition("\n<state>")[0].strip()[:_MAX_REASON]}
    return {"text": text, "grown": _peak_memory() - before}


def _converted(text: str) -> str:
    """The same list of grammars, with the GBNF one converted to Lark."""
    from ingot.sampling.grammar.gbnf import to_lark  # noqa: PLC0415 (loaded already)

    grammars = json.loads(text)
    body = grammars["grammars"][-1]
    body["lark_grammar"] = to_lark(body["lark_grammar"])
    return json.dumps(grammars)


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints must not mix with the messages
    main(sys.stdin.buffer, out)
