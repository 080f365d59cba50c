"""`ingot convert`: what it prints, writes and refuses."""

import subprocess
import sys
from pathlib import Path

from checkpoints import write_llama
from ingot.gguf import GgufLoader

INGOT = Path(sys.executable).with_name("ingot")


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [INGOT, "convert", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_path_is_printed(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny-llama")
    done = run(folder, "--type", "f16", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "tiny-llama-F16.gguf\n"), done.stderr
    assert "LlamaForCausalLM: " in done.stderr
    with GgufLoader(tmp_path / "tiny-llama-F16.gguf") as loader:
        assert loader.metadata.string("general.name") == "tiny-llama"


def test_errors_are_one_line(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny", architectures=["StrangeForCausalLM"])
    done = run(folder, "-o", "out.gguf", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: models of the class StrangeForCausalLM cannot be")
    assert "look for a GGUF file of the model (`ingot search`)" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out.gguf").exists()
