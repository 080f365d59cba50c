"""Habits from other tools: pipes, `--system`, `--json`, ollama's names, shell completion, `ps`."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_runs import INGOT, PATIENCE, Run

from scripted_gguf import write_scripted_gguf


@pytest.fixture
def model(tmp_path: Path) -> Path:
    cues = {"Rhyme: cat": "hat", "cat": "A cat.", "two\n\nlines": "Both.", "alone": "Alone."}
    return write_scripted_gguf(tmp_path / "model.gguf", cues, context=512)


def test_what_is_piped_in_is_appended_to_the_prompt(run_process: Run, model: Path) -> None:
    ran = run_process("run", "-m", model, "two", stdin="lines")
    assert (ran.status, ran.out) == (0, "Both.\n")
    assert run_process("run", "-m", model, stdin="alone").out == "Alone.\n"
    assert run_process("run", "-m", model, "-", stdin="alone").out == "Alone.\n"
    assert run_process("run", "-m", model, "cat", stdin="").out == "A cat.\n"
    assert run_process("run", "-m", model, "-", stdin=" ").status == 2


def test_a_socket_as_stdin_is_not_waited_for(model: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ran = subprocess.run(
            [str(INGOT), "run", "-m", str(model), "cat"],
            stdin=theirs.fileno(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (ran.returncode, ran.stdout) == (0, "A cat.\n")


def test_a_wait_for_stdin_is_explained(model: Path) -> None:
    command = [str(INGOT), "run", "-m", str(model), "cat"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        assert "waiting for the end of the text on stdin" in process.stderr.readline()
        assert process.communicate("", timeout=PATIENCE)[0] == "A cat.\n"


def test_a_system_message_comes_before_the_prompt(run: Run, model: Path) -> None:
    with_system = json.loads(run("run", "-m", model, "--json", "--system", "Be brief.", "cat").out)
    without = json.loads(run("run", "-m", model, "--json", "cat").out)
    assert with_system["text"] == without["text"] == "A cat."
    added = with_system["prompt_tokens"] - without["prompt_tokens"]
    assert added == len("system: Be brief.") + 2
    refused = run("run", "-m", model, "--raw", "--system", "x", "cat")
    assert (refused.status, "--system" in refused.err) == (2, True)


def test_an_answer_as_json(run: Run, model: Path) -> None:
    ran = run("run", "-m", model, "--json", "--seed", 3, "cat")
    answer = json.loads(ran.out)
    assert (answer["text"], answer["content"], answer["reasoning"]) == ("A cat.", "A cat.", None)
    assert (answer["finish_reason"], answer["seed"]) == ("stop", 3)
    assert answer["generated_tokens"] > 0
    assert answer["model"] == str(model)
    assert ran.err == ""
    cut = json.loads(run("run", "-m", model, "--json", "-n", 1, "cat").out)
    assert cut["finish_reason"] == "length"


def test_ollama_s_names_of_commands(run: Run, model: Path, cache: Path) -> None:
    (cache / "kept.gguf").write_bytes(model.read_bytes())
    assert "kept.gguf" in run("ls").out
    assert run("ls").out == run("list").out
    assert run("show", "kept").out == run("inspect", "kept").out != ""
    assert run("rm", "kept.gguf").status == 0
    assert not (cache / "kept.gguf").exists()
    shown = run("--help").out
    assert all(text in shown for text in ("list, ls", "remove, rm", "inspect, show"))
    assert run("lst").status == 2


@pytest.fixture
def served(model: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [str(INGOT), "serve", "-m", str(model), "-m", f"other={model}", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"INGOT_API_KEY": "sesame"},
    )
    assert process.stderr is not None
    try:
        line = ""
        while not line.startswith("serving"):
            line = process.stderr.readline()
            assert line, "it ended"
        yield line.rsplit(" ", 1)[1].strip()
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_the_models_of_a_server(
    run_process: Run, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run_process("ps", "--url", served)
    assert (refused.status, refused.err) == (2, refused.err)
    assert "INGOT_API_KEY" in refused.err
    monkeypatch.setenv("INGOT_API_KEY", "sesame")
    heading, row = run_process("ps", "--url", served).out.splitlines()
    assert heading.split() == ["NAME", "STATUS", "SIZE", "CONTEXT", "RUNNING", "WAITING"]
    name, status, *_, context, running, waiting = row.split()
    assert (name, status, context, running, waiting) == ("model", "loaded", "512", "0", "0")
    both = json.loads(run_process("ps", "--url", served, "--all", "--json").out)
    assert [each["status"] for each in both] == ["loaded", "unloaded"]


def test_no_server_is_an_error(run: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ran = run("ps", "--url", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert ran.status == 2
    assert "ingot serve" in ran.err
    assert run("ps", "--url", "file:///etc/passwd").status == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    assert "_INGOT_COMPLETE" in script


def test_commands_and_models_are_completed(model: Path, cache: Path) -> None:
    (cache / "kept.gguf").write_bytes(model.read_bytes())

    def completed(words: str) -> list[str]:
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        done = subprocess.run(
            [str(INGOT)],
            env=os.environ | {"_INGOT_COMPLETE": "complete_bash"} | asked,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return done.stdout.split()

    assert completed("ingot re") == ["remove"]
    assert completed("ingot run -m ke") == ["kept.gguf"]
    assert completed("ingot serve --model ke") == ["kept.gguf"]
    assert "--system" in completed("ingot run --s")
