"""Ingot on macOS and Windows, as far as Linux can pretend to be them (simulated.py).

Each test runs a program in a process of its own, whose `sitecustomize` changes what Ingot sees of
the system.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from simulated import (
    MACOS_CORES,
    MACOS_CPU,
    MACOS_PAGES,
    WINDOWS_CORES,
    WINDOWS_CPU,
    WINDOWS_MEMORY,
    WINDOWS_THREADS,
)

from tiny_llama import write_tiny_llama

PATIENCE = 300
CORES = {"windows": WINDOWS_CORES, "macos": MACOS_CORES}
THREADS = {"windows": WINDOWS_THREADS, "macos": MACOS_CORES}
MEMORY = {"windows": WINDOWS_MEMORY, "macos": MACOS_PAGES * os.sysconf("SC_PAGE_SIZE")}
COMMAND = ["-c", "from ingot.cli import main; main()"]

pytestmark = pytest.mark.parametrize("system", ["windows", "macos"])


def environment(system: str, home: Path, **more: object) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INGOT_")}
    kept.pop("XDG_CACHE_HOME", None)
    here = Path(__file__).parent
    ours = {"SIMULATED_SYSTEM": system, "PYTHONPATH": here, "HOME": home} | more
    return kept | {name: str(value) for name, value in ours.items()}


def run(system: str, home: Path, *arguments: object, **more: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment(system, home, **more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Without what needs PyTorch or Ray, the one script that is no module, and what is of other systems.
IMPORT_ALL = """
from importlib import import_module
from pathlib import Path
import ingot.machine
root = Path(ingot.__file__).parent
files = [file.relative_to(root.parent) for file in root.rglob("*.py")]
names = {".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files}
others = ("ingot.backends.gpu", "ingot.engine.model.gpu_", "ingot.machine.", "ingot.ray.")
names = {name for name in names if not name.startswith(others)}
for name in sorted(names - {"ingot.server.page.pdf_reader"}):
    import_module(name)
print(len(names), ingot.machine.usable_cores())
"""


def test_every_module_can_be_imported(system: str, tmp_path: Path) -> None:
    count, cores = map(int, run(system, tmp_path, "-c", IMPORT_ALL).split())
    assert count > 300
    assert cores == CORES[system]


def test_info_says_what_the_system_says(system: str, tmp_path: Path) -> None:
    said = json.loads(run(system, tmp_path, *COMMAND, "info", "--json"))
    assert said["threads"] == THREADS[system]
    assert said["memory"]["available"] == MEMORY[system]
    caches = {"windows": "AppData/Local", "macos": "Library/Caches"}[system]
    assert said["cache"] == str(tmp_path / caches / "ingot")


# With less time and memory for each measurement, as the tests of the command have.
DOCTOR = """
import sys
from ingot.cli import main
from ingot.cli.doctor import calibration, report
calibration._SECONDS = dict.fromkeys(calibration._SECONDS, 0.001)
calibration._READ_BYTES = calibration._ROWS_BYTES = 1 << 20
report._MEASURED_SECONDS = 0.01
main()
"""


def test_doctor_knows_the_memory_and_the_cores(system: str, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    found = json.loads(run(system, tmp_path, "-c", DOCTOR, "doctor", "--json", "-m", model))
    machine = found["machine"]
    assert machine["system"] == {"windows": "Windows", "macos": "Darwin"}[system]
    assert machine["allowed_cpus"] == CORES[system]
    assert found["settings"]["threads"] == THREADS[system]
    assert machine["available"] == MEMORY[system]
    assert machine["swap_used"] is machine["huge_pages"] is machine["memory_limit"] is None
    assert found["calibration"]["read_huge"] is found["model"]["disk_bytes_per_second"] is None
    assert {fit["size"] for fit in found["sizes"] if fit["fits"]} >= {"8B", "14B"}
    said = [finding["what"] for finding in found["findings"]]
    assert not [what for what in said if "allowed" in what]
    assert machine["cpu"] == found["calibration"]["validity"]["cpu"]
    assert machine["cpu"] == {"windows": WINDOWS_CPU, "macos": MACOS_CPU}[system]
    every = os.cpu_count() or 1
    cpus = min(every, 64)
    pair, of_windows = min(cpus, 2), (cpus + 1) // 2 if cpus == every else None
    cores, *caches = {
        "windows": [of_windows, (1, 48 << 10, pair), (2, 1 << 20, pair), (3, 12 << 20, cpus)],
        "macos": [9, (1, 128 << 10, 1), (2, 16 << 20, MACOS_CORES)],
    }[system]
    assert machine["cores"] == cores
    assert [tuple(cache.values()) for cache in machine["caches"]] == caches
    text = run(system, tmp_path, "-c", DOCTOR, "doctor")
    share = {"windows": "allowed", "macos": "fast"}[system]
    assert f"{CORES[system]} of {os.cpu_count()} {share}" in text


OPEN = """
import sys
from pathlib import Path
from ingot import GgufLoader
from ingot.gguf.mmap import MmapGguf
mapped, read = (MmapGguf(sys.argv[1], mapped=how) for how in (True, False))
assert (mapped.is_mapped, read.is_mapped) == (True, False)
bytes = Path(sys.argv[1]).read_bytes()
for file in (mapped, read):
    assert file.get_slice(8, 3000).tobytes() == bytes[8:3008]
    assert file.change is None
mapped.lock()
print(GgufLoader(sys.argv[1]).metadata["general.architecture"])
"""


def test_a_file_is_opened_mapped_and_read(system: str, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    assert run(system, tmp_path, "-c", OPEN, model) == "llama\n"


def test_a_thread_lets_others_go_first(system: str, tmp_path: Path) -> None:
    code = "import simulated; from ingot.machine import lower_priority as lower; lower(); "
    said = run(system, tmp_path, "-c", code + "print(simulated.PRIORITIES)")
    assert said == {"windows": "[-1]\n", "macos": "[17]\n"}[system]


# Locks a draft and a download, and has another process look at them.
LOCKS = """
import os, subprocess, sys
from pathlib import Path
from ingot import files
from ingot.store import download
folder = Path(sys.argv[1])
if len(sys.argv) > 2:
    files.sweep(folder)
    print(files.lock_file(files.open_file(sys.argv[2], os.O_RDWR), wait=False))
    sys.exit()
(folder / ".ingot-draft-1-0123456789abcdef").write_bytes(b"of a killed writer")
files.write_file(folder / "file", [b"old"])
other = [sys.executable, "-c", sys.argv[0], str(folder)]
def seen(path):
    done = subprocess.Popen(other + [str(path)], stdout=subprocess.PIPE, text=True)
    return done.communicate()[0].strip()
target = folder / "model.gguf"
with files.Draft(folder / "file") as draft, download._locked_part(target, print) as part:
    draft.write(b"new")
    print(seen(draft._path), seen(download.part_of(target)))
    part.write(b"GGUF")
    part.flush()
    files.move_file(download.part_of(target), target)
    draft.publish()
print(seen(target), (folder / "file").read_bytes(), sorted(os.listdir(folder)))
"""


def test_the_locks_of_the_store_hold_between_processes(system: str, tmp_path: Path) -> None:
    program = LOCKS.replace("sys.argv[0]", "Path(sys.argv[1], '..', 'locks.py').read_text()")
    (tmp_path / "locks.py").write_text(program)
    folder = tmp_path / "store"
    folder.mkdir()
    said = run(system, tmp_path, "-c", program, folder).splitlines()
    assert said == ["False False", "True b'new' ['file', 'model.gguf']"]


# A grammar that takes too long ends the process that tries it; the next one starts another.
TRIALS = """
import sys
from ingot import GgufLoader
from ingot.errors import GrammarError
from ingot.sampling import Grammar
from ingot.sampling.grammar.compile import GrammarCompiler
from ingot.sampling.grammar.limits import GrammarLimits
from ingot.tokenizer import Tokenizer
tokenizer = Tokenizer.from_metadata(GgufLoader(sys.argv[1]).metadata)
limits = GrammarLimits(quick_seconds=0.05, seconds=0.2, patience=5, memory=1 << 30)
compiler = GrammarCompiler(tokenizer, limits)
for grammar in (Grammar.gbnf("root ::= " + "[a-z]* " * 20_000), Grammar.regex("a plain one")):
    print(compiler.compile(grammar).exception(300))
compiler.close()
"""


def test_a_grammar_that_takes_too_long_is_refused(system: str, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    slow, plain = run(system, tmp_path, "-c", TRIALS, model).splitlines()
    assert "takes more than 0.2 s to compile" in slow
    assert plain == "None"


def test_a_server_starts_answers_and_ends(system: str, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    server = subprocess.Popen(
        [sys.executable, *COMMAND, "serve", "-m", str(model), "--port", "0", "-c", "128"],
        env=environment(system, tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        lines: list[str] = []
        while not (line := server.stderr.readline()).startswith("serving "):
            lines.append(line)
            assert line, "".join(lines)
        url = line.split()[-1]
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [1]}}}
        body = {
            "messages": [{"role": "user", "content": "a"}],
            "response_format": schema,
            "max_tokens": 8,
        }
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE).json()
        assert answer["choices"][0]["message"]["content"] == "1"
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=PATIENCE)
        assert server.returncode == 0
    finally:
        server.kill()
        server.communicate()
