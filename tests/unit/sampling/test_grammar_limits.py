"""Grammars that cost too much are refused, and hold nobody else up."""

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
from grammar_bombs import BOMBS, crossing, properties

from ingot.errors import GrammarError, ModelError, QueueFullError, ThreadLimitError
from ingot.sampling import ChainBuilder, Grammar
from ingot.sampling.grammar import state
from ingot.sampling.grammar.compile import GrammarCompiler
from ingot.sampling.grammar.limits import LARGEST_SOURCE, GrammarLimits
from ingot.sampling.grammar.trial_main import TrialRequest, TrialResult
from ingot.tokenizer import Tokenizer

PATIENCE = 300  # seconds, on a machine that does other things
# More memory than the quickest machine fills in that time.
STRICT = GrammarLimits(quick_seconds=0.05, seconds=0.2, patience=100, memory=1 << 30)
# A bomb that runs until somebody stops it, or the test is stopped.
ENDLESS = GrammarLimits(quick_seconds=0.05, seconds=PATIENCE, patience=10, memory=64 << 30)
SLOW = properties(1500)  # too slow to be quick
DOUBLED = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(16))
PLAIN = Grammar.regex("a plain one")


@pytest.fixture(scope="module")
def strict(letters: Tokenizer) -> Iterator[GrammarCompiler]:
    """A compiler that takes nothing that costs much."""
    compiler = GrammarCompiler(letters, STRICT)
    yield compiler
    compiler.close()


@pytest.fixture
def endless(letters: Tokenizer) -> Iterator[GrammarCompiler]:
    """A compiler that takes its time."""
    compiler = GrammarCompiler(letters, ENDLESS)
    yield compiler
    compiler.close()


@pytest.mark.parametrize(
    "make",
    [
        Grammar.regex,
        Grammar.lark,
        Grammar.gbnf,
        lambda text: Grammar.choices([text]),
        lambda text: Grammar.json_schema({"const": text}),
        lambda text: Grammar.regex("a").after(text),
        lambda text: Grammar.regex("a").preceded_by(text),
    ],
)
def test_a_grammar_that_is_too_long_is_refused(make: object) -> None:
    make("a" * (LARGEST_SOURCE - 100))  # type: ignore[operator]
    with pytest.raises(GrammarError, match=f"at most {LARGEST_SOURCE:,} are allowed"):
        make("a" * (LARGEST_SOURCE + 1))  # type: ignore[operator]


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(GrammarError, match="nested too deeply"):
        Grammar.json_schema('{"items":' * 50_000 + "{}" + "}" * 50_000)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_or_harmless(strict: GrammarCompiler, name: str) -> None:
    error = strict.compile(BOMBS[name]).exception(PATIENCE)
    if error is not None:
        assert isinstance(error, GrammarError)
        assert "grammar cannot be used: " in str(error)


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (crossing(39), "takes more than 0.2 s to compile"),
        (BOMBS["a chain of rules"], "nested too deeply to compile"),
        (BOMBS["GBNF: 20,000 classes"], "takes more than 0.2 s to compile"),
    ],
    ids=["time", "stack", "conversion"],
)
def test_the_limit_is_named(strict: GrammarCompiler, grammar: Grammar, reason: str) -> None:
    with pytest.raises(GrammarError, match=reason):
        strict.wait(grammar)
    strict.wait(PLAIN)


def test_memory_is_limited(letters: Tokenizer) -> None:
    small = GrammarLimits(quick_seconds=PATIENCE, seconds=PATIENCE, memory=8 << 20)
    compiler = GrammarCompiler(letters, small)
    with pytest.raises(GrammarError, match="takes more than 8 MB to compile"):
        compiler.wait(BOMBS["5,000 properties"])
    compiler.wait(PLAIN)
    compiler.close()


def test_nobody_waits_for_a_bomb(endless: GrammarCompiler) -> None:
    bombs = [endless.compile(crossing(count)) for count in range(39, 42)]
    for number in range(5):
        endless.compile(Grammar.choices([str(number)])).result(PATIENCE)
    assert not any(bomb.done() for bomb in bombs)


def test_a_bomb_that_nobody_wants_any_more_is_stopped(endless: GrammarCompiler) -> None:
    running, waiting = endless.compile(crossing(39)), endless.compile(crossing(40))
    end = time.monotonic() + PATIENCE
    while endless._workers[1]._current is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    slow = endless.compile(SLOW)  # its turn comes after theirs
    assert running.cancel()
    assert waiting.cancel()
    assert slow.result(PATIENCE).memory > 0


def test_others_who_want_a_grammar_still_get_it(endless: GrammarCompiler) -> None:
    first, second = (endless.compile(SLOW) for _ in range(2))
    third = endless.compile(SLOW)
    assert first.cancel()
    assert second.result(PATIENCE) is third.result(PATIENCE)


def test_ctrl_c_ends_the_wait_and_the_work(letters: Tokenizer) -> None:
    one = GrammarLimits(quick_seconds=0.1, seconds=PATIENCE, memory=64 << 30, waiting=1)
    compiler = GrammarCompiler(letters, one)
    main = threading.main_thread().ident
    assert main is not None
    press = threading.Timer(1, signal.pthread_kill, (main, signal.SIGINT))
    press.start()
    with pytest.raises(KeyboardInterrupt):
        compiler.wait(crossing(39))
    compiler.wait(PLAIN)  # there is room again
    compiler.close()


def test_only_so_many_may_wait(letters: Tokenizer) -> None:
    limits = GrammarLimits(quick_seconds=0.1, seconds=PATIENCE, memory=64 << 30, waiting=2)
    compiler = GrammarCompiler(letters, limits)
    bombs = [compiler.compile(crossing(count)) for count in (39, 40)]
    with pytest.raises(QueueFullError, match="2 grammars are waiting to be compiled"):
        compiler.compile(PLAIN)
    compiler.compile(crossing(39)).cancel()  # a second caller of the same grammar adds no work
    compiler.close()
    for bomb in bombs:
        assert isinstance(bomb.exception(PATIENCE), ModelError)


@pytest.mark.parametrize(
    "limits", [GrammarLimits(kept=2), GrammarLimits(kept_memory=1)], ids=["number", "memory"]
)
def test_grammars_used_last_are_kept(letters: Tokenizer, limits: GrammarLimits) -> None:
    compiler = GrammarCompiler(letters, limits)
    first = weakref.ref(compiler.wait(PLAIN))
    gc.collect()
    assert compiler.wait(PLAIN) is first()
    for number in range(3):
        compiler.wait(Grammar.choices([str(number)]))
    gc.collect()
    assert first() is None
    compiler.close()


def test_a_grammar_in_use_is_not_compiled_again(letters: Tokenizer) -> None:
    compiler = GrammarCompiler(letters, GrammarLimits(kept=1))
    held = compiler.wait(PLAIN)
    compiler.wait(Grammar.choices(["other"]))
    assert compiler.wait(PLAIN) is held
    compiler.close()


def test_a_process_that_was_killed_is_started_again(letters: Tokenizer) -> None:
    compiler = GrammarCompiler(letters)
    compiler.wait(PLAIN)
    trial = compiler._workers[0]._trial
    first = trial._process
    assert first is not None
    trial.kill()
    after = Grammar.regex("after")
    assert compiler.wait(after) is compiler.wait(after)
    assert first.returncode == -signal.SIGKILL
    assert trial._process not in (None, first)
    compiler.close()


def test_a_bomb_that_is_cancelled_while_its_process_starts_is_not_tried(
    letters: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to kill yet, so the worker has to look once more."""
    compiler = GrammarCompiler(letters, GrammarLimits(quick_seconds=2, seconds=2, memory=64 << 30))
    trial = compiler._workers[0]._trial
    start, ask = trial._start, trial._ask
    submitted = threading.Event()
    asked: list[str] = []

    def start_after_cancel() -> None:
        assert submitted.wait(PATIENCE)
        assert bomb.cancel()
        start()

    def record(request: TrialRequest) -> TrialResult:
        asked.append(request["text"])
        return ask(request)

    monkeypatch.setattr(trial, "_ask", record)
    with monkeypatch.context() as patched:
        patched.setattr(trial, "_start", start_after_cancel)
        bomb = compiler.compile(crossing(39))
        submitted.set()
        compiler.wait(PLAIN)
    assert bomb.cancelled()
    assert len(asked) == 1
    assert "a plain one" in asked[0]
    compiler.close()


def test_what_cannot_be_started_is_an_error_that_may_pass(
    letters: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = GrammarCompiler(letters)
    with monkeypatch.context() as patched:
        patched.setattr("sys.executable", "/nowhere")
        with pytest.raises(QueueFullError, match="No such file"):
            compiler.wait(PLAIN)
    compiler.wait(PLAIN)
    compiler.close()


def test_a_system_without_threads_is_an_error_that_may_pass(
    letters: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    compiler = GrammarCompiler(letters)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ThreadLimitError, match="grammars cannot be compiled now"):
            compiler.wait(PLAIN)
    assert compiler.wait(PLAIN) is compiler.wait(PLAIN)
    compiler.close()


def test_a_fork_is_told_that_it_cannot_compile(strict: GrammarCompiler) -> None:
    child = os.fork()
    if child == 0:
        try:
            strict.compile(PLAIN)
        except ModelError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.regex("(a{1000}){1000}"),
        Grammar.regex("[ab](a{300}){300}"),
        Grammar.json_schema({"const": "a" * 20_000}),
        Grammar.json_schema({"type": "string", "pattern": "^a{50000}$"}),
        Grammar.gbnf('root ::= b{200}\nb ::= "a"{200}'),
        Grammar.lark("start: A\nA: /a{200}/~200"),
        Grammar.gbnf("root ::= r0\n" + DOUBLED + '\nr16 ::= "ab"'),
        Grammar.gbnf('root ::= [xy] "' + "a" * 20_000 + '"'),
    ],
    ids=lambda grammar: grammar.source[:30],
)
def test_not_too_many_bytes_are_forced_at_once(builder: ChainBuilder, grammar: Grammar) -> None:
    start = builder.grammar_state(grammar)
    assert len(start.forced()) < 1000
    assert start.mask().any()


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.regex("a{20}(b{1,3}c){4}"),
        Grammar.gbnf('root ::= "aaaa"{5} ([a-z]{4} | [0-9]{1,16}){2,20}'),
        Grammar.lark('start: "a" "b"~3 s\ns: /[a-z]{1,20}/ | "(" s ")"'),
        Grammar.choices(["a choice", "a chosen one"]),
        Grammar.json_schema({"const": "b" * 2000}),
    ],
    ids=lambda grammar: grammar.source[:30],
)
def test_ordinary_bytes_are_forced(builder: ChainBuilder, grammar: Grammar) -> None:
    assert len(builder.grammar_state(grammar).forced()) > 1


def test_a_text_whose_tokens_take_too_long_ends(
    builder: ChainBuilder, letters: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_SECONDS", 0.05)
    monkeypatch.setattr(state, "_SECONDS_PER_TOKEN", 0.0)
    ambiguous = builder.grammar_state(BOMBS["ambiguity"])
    (token,) = letters.encode("a", add_special=False)

    def write() -> None:
        for _ in range(1000):
            ambiguous.mask()
            ambiguous.accept(token)

    with pytest.raises(GrammarError, match="that a text may take in addition are used up"):
        write()
