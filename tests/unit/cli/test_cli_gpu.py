"""What commands say of a GPU: `--gpu-layers`, a bar while weights are sent, what fits."""

import asyncio
import io
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_runs import Run

from ingot.backends.backend import Stage
from ingot.cli.shared.open_model import OpeningBar
from ingot.engine import EngineOptions
from ingot.engine.model import loaded_model
from ingot.engine.model.on_gpu import OnGpu
from ingot.engine.model.placement import Placed
from ingot.errors import ConfigError
from ingot.server.catalog import Catalog
from ingot.server.options import ServedModel, ServerOptions
from tiny_llama import write_tiny_llama


class PlacedThere(Placed):
    """As if a GPU had some of the layers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        asked, progress = options.pop("gpu_layers"), options["progress"]
        super().__init__(*args, **options)
        decoded = () if asked == 7 else ("iq2_s", "iq3_s")
        self.gpu = OnGpu("a card", asked, 7, 6, 3 << 30, 4_200_000_000, 2.0, decoded)
        progress(Stage.WEIGHTS, 1 << 20, 2 << 20)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("command", ["run", "chat", "serve", "bench"])
def test_no_number(run: Run, model: Path, command: str) -> None:
    ran = run(command, "-m", model, "--gpu-layers", "some")
    assert ran.status == 2
    said = "error: --gpu-layers is 'some'; it must be a number or auto"
    assert ran.err.splitlines()[-1] == said


@pytest.mark.parametrize("command", ["run", "chat", "serve", "bench"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("1,x", "--gpu-split is '1,x'; it must be a number for each GPU, such as 1,1"),
        ("1", "gpu_split is (1.0,); it must be a list of two or more numbers above 0"),
        ("1,0", "gpu_split is (1.0, 0.0); it must be a list"),
        ("1,nan", "gpu_split is (1.0, nan); it must be a list"),
        ("1e308,1e308", "gpu_split is (1e+308, 1e+308); it must be a list"),
        ("1,1", "gpu_split is (1.0, 1.0), and the device 'cpu'; take device='cuda'"),
    ],
)
def test_no_shares(run: Run, model: Path, command: str, given: str, said: str) -> None:
    sizes = ["-p", 1, "-n", 0] if command == "bench" else []
    ran = run(command, "-m", model, "--device", "cpu", "--gpu-split", given, *sizes)
    assert ran.status != 0
    assert said in ran.err


def test_shares_reach_the_model(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[Any] = []

    def placed(*_: Any, **options: Any) -> None:
        shares.append(options["gpu_split"])
        raise ConfigError("enough")

    monkeypatch.setattr(loaded_model, "Placed", placed)
    for command in (["run", "a"], ["bench", "-p", 1, "-n", 0], ["warm"]):
        ran = run(command[0], "-m", model, "--device", "cuda", "--gpu-split", "3,1", *command[1:])
        assert "enough" in ran.err
    assert shares == [(3.0, 1.0)] * 3


@pytest.mark.parametrize("asked", ["-1", "999"])
def test_more_than_there_are(run: Run, model: Path, asked: str) -> None:
    ran = run("run", "-m", model, "--device", "cuda", f"--gpu-layers={asked}", "a")
    assert ran.status == 2
    assert "it must be a number" in ran.err


@pytest.mark.parametrize(
    ("asked", "said", "more"),
    [(3, "3 of 7 layers", "; iq2_s, iq3_s decoded to half floats"), (7, "all layers", "")],
)
def test_what_is_said(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, asked: int, said: str, more: str
) -> None:
    monkeypatch.setattr(loaded_model, "Placed", PlacedThere)
    ran = run("run", "-m", model, "--gpu-layers", asked, "--raw", "-n", 1, "abc")
    assert ran.status == 0
    expected = (
        f"{said} on a card, 4.20 GB sent in 2.0 s (2.1 GB/s), 6 device allocations of 3.0 GiB{more}"
    )
    assert ran.err.splitlines()[0] == expected  # no bar: this is no terminal
    ran = run("bench", "-m", model, "--gpu-layers", asked, "-p", 1, "-n", 0, "-r", 1, "-o", "json")
    assert json.loads(ran.out)[0]["n_gpu_layers"] == asked
    assert ran.err.splitlines() == [expected]


def test_what_a_server_says(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In lines: that weights are on their way, and what became of them."""
    monkeypatch.setattr(loaded_model, "Placed", PlacedThere)
    served = ServedModel(name="tiny", path=model, engine=EngineOptions(gpu_layers=7, weights="map"))
    said: list[str] = []

    async def open_and_close() -> None:
        catalog = Catalog(ServerOptions(models=(served,)), said.append)
        (await catalog.lease()).release()
        await catalog.close()

    asyncio.run(open_and_close())
    assert said == [
        "tiny: uploading weights to the GPU (0.00 GB)",
        "tiny: all layers on a card, 4.20 GB sent in 2.0 s (2.1 GB/s), 6 device allocations of "
        "3.0 GiB",
        "tiny: context of 256 tokens, all that the model allows",
    ]


WITHOUT_PACKAGES = "needs PyTorch and Triton: pip install 'ingot-llm[gpu]'"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("abc " * 40)
    return path


@pytest.mark.parametrize("command", ["run", "chat", "serve", "bench", "perplexity"])
def test_no_packages(
    run: Run, model: Path, text: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """One line that says what to install."""
    monkeypatch.setattr("ingot.backends.backend.find_spec", lambda _: None)
    # Another process would not see the patch.
    more = {"run": ["abc"], "chat": [], "serve": ["--port", 0, "--no-engine-process"]}
    more |= {"bench": ["-p", 1, "-n", 1], "perplexity": ["-c", 4, text]}
    ran = run(command, *more[command], "-m", model, "--device", "cuda")
    assert ran.status == 2
    assert ran.err.splitlines() == [f"error: device 'cuda' {WITHOUT_PACKAGES}"]


def test_packages_that_do_not_work(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise OSError("libcudart.so.13: cannot open shared object file\nand a long story")

    monkeypatch.setattr("ingot.backends.backend.find_spec", lambda _: True)
    monkeypatch.setattr("ingot.backends.backend.import_module", broken)
    ran = run("run", "-m", model, "--device", "cuda", "--raw", "abc")
    assert ran.status == 2
    assert ran.err.splitlines() == [
        "error: device 'cuda' needs PyTorch and Triton, and they cannot be imported "
        "(libcudart.so.13: cannot open shared object file): pip install -U 'ingot-llm[gpu]'"
    ]


def test_a_cpu_that_stands_in(
    run: Run, model: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --device auto: a line, and the command goes on; nothing where the CPU was chosen."""
    monkeypatch.setattr("ingot.backends.backend.find_spec", lambda _: None)
    said = [f"all layers on the CPU: device 'auto' {WITHOUT_PACKAGES}"]
    for arguments in (
        ("run", "--raw", "-n", 1, "abc"),
        ("bench", "-p", 1, "-n", 0, "-r", 1),
        ("perplexity", "-c", 4, text),
    ):
        for device, expected in (("auto", said), ("cpu", [])):
            ran = run(*arguments, "-m", model, "--device", device)
            assert ran.status == 0
            assert [
                line for line in ran.err.splitlines() if "GPU" in line or "gpu" in line
            ] == expected


def test_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with OpeningBar() as bar:
        bar(Stage.WEIGHTS, 1 << 20, 4 << 20)
        bar(Stage.WEIGHTS, 4 << 20, 4 << 20)
        bar(Stage.KERNELS, 3, 9)
    assert re.search(r"\r +\r\rcompiling kernels \[##########  .* 3 of 9", terminal.getvalue())
    assert "uploading weights to the GPU [#######   " in terminal.getvalue()
    assert "4 of 4 MiB" in terminal.getvalue()
    assert re.search(r"\r +\r$", terminal.getvalue())  # gone


def test_what_fits(run: Run, model: Path) -> None:
    if not all(find_spec(package) for package in ("torch", "triton")):
        pytest.skip("the planner counts with PyTorch: make test-gpu-interpreter")
    ran = run("inspect", model, "--gpu", 24)
    assert ran.status == 0
    assert "on a GPU of 24 GB" in ran.out
    assert "layers and a KV cache of " in ran.out
    found = json.loads(run("inspect", model, "--gpu", 24, "--json").out)
    assert (found["gpu"], found["kv_type"]) == (24 * 10**9, "f16")
    assert found["layers"] == found["of_layers"] > 0
    room = found["weights"] + found["steps"] + found["token"] * found["cache_tokens"]
    assert 0 <= 24 * 10**9 - room < 32 * found["token"]
    assert "no layer (of " in run("inspect", model, "--gpu", 0.001).out
    assert run("inspect", model, "--gpu", "-3").status == 2


def test_what_fits_without_the_packages(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingot.backends.backend.find_spec", lambda _: None)
    ran = run("inspect", model, "--gpu", 24)
    assert ran.status == 2
    assert "--gpu 24 needs PyTorch and Triton: pip install 'ingot-llm[gpu]'" in ran.err
