"""Mutation testing: break the code in one place at a time, and see whether a test fails.

    make mutants                                   # a sample of every target
    python -m mutants.run --sample 0 scheduler     # all mutants of one

Prints the mutants that survived, and how many of each target were killed; exits with 1 if a target
has less than 80%. Each mutant runs in a fork of a process that has imported the tests, so that it
takes little more than the tests themselves; no file is changed.
"""

import argparse
import ast
import contextlib
import gc
import importlib.machinery
import io
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FunctionType
from typing import Self

import pytest
from hypothesis import Phase, settings

from mutants import cpp_mutants
from mutants.python_mutants import Mutant, mutants
from mutants.targets import PYTHON, ROOT, Target

LEAST = 0.8  # share of mutants that must be killed
_SLOWER = 10  # times the CPU time of the tests, after which a mutant counts as killed
_CPU_SECONDS, _SECONDS = 20, 1800
_PROFILE = "mutants"  # as in tests/conftest.py, but nobody reads the smallest example that fails
settings.register_profile(
    _PROFILE, derandomize=True, deadline=None, phases=(Phase.explicit, Phase.generate)
)


@dataclass
class Run:
    """The tests of a target on a mutant, or on the code as it is (None), in a process."""

    target: Target
    mutant: Mutant | None
    cpu_limit: int
    process: int = 0
    deadline: float = 0.0

    def start(self) -> Self:
        """Fork."""
        self.deadline = time.monotonic() + _SECONDS
        self.process = os.fork()
        if self.process == 0:
            os._exit(_run_tests(self.target, self.mutant, self.cpu_limit))
        return self

    def passed(self) -> bool | None:
        """Whether the tests passed; None while they run."""
        ended, status = os.waitpid(self.process, os.WNOHANG)
        if not ended:
            if time.monotonic() > self.deadline:  # it waits for something that never comes
                os.kill(self.process, signal.SIGKILL)
            return None
        code = os.waitstatus_to_exitcode(status)
        if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise SystemExit(f"these tests cannot be run: {self.target.tests}")
        return code == 0


def run_all(runs: Iterable[Run], workers: int) -> Iterator[tuple[Run, bool]]:
    """Run them, some at a time, and give each with its result as it ends."""
    waiting, running = iter(runs), list[Run]()
    while True:
        running += [run.start() for run in islice(waiting, workers - len(running))]
        if not running:
            return
        for run in [*running]:
            if (passed := run.passed()) is not None:
                running.remove(run)
                yield run, passed
        time.sleep(0.02)


def _run_tests(target: Target, mutant: Mutant | None, cpu_limit: int) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 5))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    try:
        if mutant is not None:
            put_in_place(mutant)
        return _pytest("-x", *map(str, target.tests))
    except BaseException:
        return 1


def _pytest(*arguments: str) -> int:
    # Its plugins are imported before, so that it cannot rewrite their assertions.
    quiet = ("-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", f"--rootdir={ROOT}")
    without = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov")
    profile = f"--hypothesis-profile={_PROFILE}"
    return int(pytest.main([*quiet, *without, profile, *arguments]))


def put_in_place(mutant: Mutant) -> None:
    """Make this process run a mutant, although the tests have imported the module already.

    Functions that exist get the code and the defaults of their mutated twins; a statement at the
    top of the module runs again. A module that is imported later is imported as mutated.
    """
    path = str(ROOT / mutant.path)
    whole = compile(mutant.tree, path, "exec")
    twins = {(code.co_qualname, code.co_firstlineno): code for code in _codes(whole)}
    defined = {
        (node.name, min(part.lineno for part in (node, *node.decorator_list))): node.args
        for node in ast.walk(mutant.tree)
        if isinstance(node, ast.FunctionDef)
    }
    gc.collect()
    for found in gc.get_objects():
        if type(found) is FunctionType and found.__code__.co_filename == path:
            code = found.__code__
            twin = twins.get((code.co_qualname, code.co_firstlineno))
            if twin is not None and twin != code:
                found.__code__ = twin
            if arguments := defined.get((code.co_name, code.co_firstlineno)):
                _set_defaults(found, arguments)
    module = sys.modules.get(mutant.module)
    for statement in mutant.tree.body:
        if module and isinstance(statement, ast.Assign) and statement.lineno == mutant.line:
            exec(compile(ast.Module([statement], []), path, "exec"), module.__dict__)
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        return whole if self.path == path else usual(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _set_defaults(function: FunctionType, arguments: ast.arguments) -> None:
    """Give a function the constants among its defaults."""
    known = function.__defaults__ or ()
    function.__defaults__ = tuple(
        node.value if isinstance(node, ast.Constant) else value
        for node, value in zip(arguments.defaults, known, strict=True)
    )
    for argument, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if isinstance(node, ast.Constant) and function.__kwdefaults__:
            function.__kwdefaults__[argument.arg] = node.value


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _sampled(found: list[Mutant], sample: int, seed: int) -> list[Mutant]:
    if not sample or sample >= len(found):
        return found
    chosen = random.Random(seed).sample(range(len(found)), sample)
    return [found[index] for index in sorted(chosen)]


def _python(name: str, sample: int, seed: int, workers: int) -> float:
    target = PYTHON[name]
    found = [
        mutant
        for file in target.files
        for mutant in mutants(str(file.relative_to(ROOT)), file.read_text())
    ]
    chosen = _sampled(found, sample, seed)
    with contextlib.redirect_stdout(io.StringIO()):
        _pytest("--collect-only", *map(str, target.tests))
    before = os.times()
    for _, passed in run_all([Run(target, None, 3600)], 1):
        if not passed:
            raise SystemExit(f"{name}: the tests fail without a mutant")
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    limit = _CPU_SECONDS + round(_SLOWER * used)
    survived = 0
    runs = run_all((Run(target, mutant, limit) for mutant in chosen), workers)
    for done, (run, passed) in enumerate(runs, 1):
        if passed and run.mutant is not None:
            survived += 1
            print(f"{run.mutant.path}:{run.mutant.line}: {run.mutant.fault}", flush=True)
        print(f"{name}: {done} of {len(chosen)} done, {survived} survived", file=sys.stderr)
    return _report(name, len(chosen), len(found), survived)


def _report(name: str, tried: int, of: int, survived: int) -> float:
    share = 1 - survived / tried
    print(f"{name}: {tried - survived} of {tried} killed ({share:.0%}; {of} in all)", flush=True)
    return share


def main() -> None:
    """Run from the command line."""
    names = [*PYTHON, cpp_mutants.NAME]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(names))
    parser.add_argument("--sample", type=int, default=60, help="of each target; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if unknown := set(options.targets) - set(names):
        parser.error(f"unknown: {', '.join(unknown)}")
    shares = []
    for name in options.targets or names:
        if name == cpp_mutants.NAME:
            tried, of, survivors = cpp_mutants.run(options.sample, options.seed, options.workers)
            print(*survivors, sep="\n", end="\n" if survivors else "")
            shares.append(_report(name, tried, of, len(survivors)))
        else:
            shares.append(_python(name, options.sample, options.seed, options.workers))
    sys.exit(min(shares) < LEAST)


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
