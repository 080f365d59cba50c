"""Mutants of the merges of the tokenizer, in C++: a test program is compiled with each.

Faults are replacements in the text of a header. A mutant that does not compile is not counted; one
that runs for too long is killed.
"""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mutants.targets import ROOT

NAME = "merges"
NATIVE = ROOT / "native"
HEADERS = ("tokenizer/merge.h", "tokenizer/merges.h")
HARNESS = ROOT / "tests" / "mutants" / "merges.cpp"
_FLAGS = ("-std=c++20", "-O1", "-D_GLIBCXX_ASSERTIONS")
_SECONDS = 600
# Most mutants that do not end use a core or memory. Without a mutant the program takes 0.3 s.
_LIMITED = ("sh", "-c", 'ulimit -t 20 && ulimit -v 1000000 && exec "$0"')
_FAULTS = (
    (r"(?<![<>=!-])<(?=[ ])(?!.*template)", "<="),
    (r"<=", "<"),
    (r"(?<![<>=-])>(?=[ ]\w)", ">="),
    (r">=", ">"),
    (r"==", "!="),
    (r"!=", "=="),
    (r"&&", "||"),
    (r"\|\|", "&&"),
    (r"\+ 1\b", "+ 2"),
    (r"\+ 2\b", "+ 1"),
    (r"- 1\b", "- 2"),
    (r"(?<=[\w\]]) \+ (?=\w)", " - "),
    (r"\+=", "="),
    (r"\breturn;", ";"),
    (r"\bbreak;", ";"),
    (r"\bcontinue;", ";"),
    (r"(?<= )std::greater<>", "std::less<>"),
    (r"^( +)(?!return|const|static|explicit|template|using)[\w.\[\]\->]+(\(.*\)| = .*);$", r"\1;"),
)


@dataclass(frozen=True)
class CppMutant:
    """A header with one fault."""

    header: str
    line: int
    fault: str
    text: str


def cpp_mutants(header: str) -> Iterator[CppMutant]:
    """All mutants of a header, in the order of its lines."""
    lines = (NATIVE / header).read_text().splitlines(keepends=True)
    for number, line in enumerate(lines):
        code = line.split("//")[0]
        if code.lstrip().startswith(("#", "namespace", "static_assert")):
            continue
        for pattern, instead in _FAULTS:
            for match in re.finditer(pattern, code.rstrip("\n")):
                changed = line[: match.start()] + match.expand(instead) + line[match.end() :]
                text = "".join([*lines[:number], changed, *lines[number + 1 :]])
                fault = f"{line.strip()}  ->  {changed.strip()}"
                yield CppMutant(header, number + 1, fault, text)


def run(sample: int, seed: int, workers: int) -> tuple[int, int, list[str]]:
    """How many were tried, how many there are, and those that survived."""
    found = [mutant for header in HEADERS for mutant in cpp_mutants(header)]
    chosen = found
    if sample and sample < len(found):
        picked = random.Random(seed).sample(range(len(found)), sample)
        chosen = [found[index] for index in sorted(picked)]
    with TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocabulary.o"
        source = NATIVE / "tokenizer" / "vocabulary.cpp"
        subprocess.run([*_compiler(), "-c", source, "-o", vocabulary], check=True)
        if _passes(None, vocabulary) is not True:
            raise SystemExit("merges: the test program fails without a mutant")
        with ThreadPoolExecutor(workers) as pool:
            results = list(pool.map(lambda mutant: _passes(mutant, vocabulary), chosen))
    survivors = [
        f"native/{mutant.header}:{mutant.line}: {mutant.fault}"
        for mutant, passed in zip(chosen, results, strict=True)
        if passed
    ]
    return sum(passed is not None for passed in results), len(found), survivors


def _compiler() -> list[str]:
    return [os.environ.get("CXX", "g++"), *_FLAGS, f"-I{NATIVE}"]


def _passes(mutant: CppMutant | None, vocabulary: Path) -> bool | None:
    """Whether the test program passes; None if it does not compile."""
    with TemporaryDirectory() as folder:
        copy, program = Path(folder) / "native", Path(folder) / "program"
        (copy / "tokenizer").mkdir(parents=True)
        for header in HEADERS:  # beside each other, as they include each other by this name
            shutil.copy(NATIVE / header, copy / header)
        if mutant is not None:
            (copy / mutant.header).write_text(mutant.text)
        compiler, *flags = _compiler()
        command = [compiler, f"-I{copy}", *flags, "-w", HARNESS, vocabulary, "-o", program]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        try:
            command = [*_LIMITED, program]
            done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0
