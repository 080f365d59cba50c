"""Benchmarks that take turns with llama.cpp: their options, and a curve of a tiny model."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ingot.gguf import GgufLoader
from tiny_llama import write_tiny_llama

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


# The benchmarks' `models` is not that of the tests.
MODULES = ("models", "peer", "stepper", "versus_llama_cpp", "bench_sequences", "bench_kv_types")


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules are imported from the folder of benchmarks."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    kept = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    yield
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.modules.update(kept)


@pytest.fixture
def peer() -> Any:
    return import_module("peer")


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_peer_is_an_interpreter_with_its_package(peer: Any, tmp_path: Path) -> None:
    good = script(tmp_path / "python", "echo True")
    assert peer.named_interpreter(f"ik+repack={good}") == ("ik+repack", good)
    bench = script(tmp_path / "llama-bench", "echo 'invalid parameter: -c' >&2; exit 1")
    empty = script(tmp_path / "empty", "echo False")
    for text, said in (
        ("llama.cpp", "is not NAME=PYTHON"),
        (f"={good}", "is not NAME=PYTHON"),
        (f"ik={tmp_path / 'missing'}", "cannot be run: No such file or directory"),
        (f"ik={bench}", "is not a Python interpreter.*not a llama-bench"),
        (f"ik={empty}", "has neither llama-cpp-python nor ik-llama-cpp-python"),
    ):
        with pytest.raises(argparse.ArgumentTypeError, match=said):
            peer.named_interpreter(text)


def test_this_interpreter_is_asked_for_the_package(peer: Any) -> None:
    try:
        import_module("llama_cpp")
    except ImportError:
        with pytest.raises(argparse.ArgumentTypeError, match="has neither"):
            peer.interpreter(sys.executable)
    else:
        assert peer.interpreter(sys.executable) == sys.executable


def test_numbers_with_commas() -> None:
    numbers = import_module("arguments").numbers
    assert numbers("8,32") == (8, 32)
    assert numbers("0,2", least=0) == (0, 2)
    assert numbers("") == ()
    for wrong in ("8,x", "0", "-1"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not numbers from 1"):
            numbers(wrong)


@pytest.mark.parametrize("program", ["versus_llama_cpp.py", "bench_sequences.py"])
def test_a_wrong_peer_ends_a_program_before_it_measures(program: str, tmp_path: Path) -> None:
    arguments = ["--peer", f"ik={tmp_path / 'llama-bench'}"]
    arguments += ["qwen2-1.5b"] if program == "bench_sequences.py" else []
    ran = subprocess.run(
        [sys.executable, BENCHMARKS / program, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "cannot be run" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_every_dense_model_is_run_with_several_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    versus = import_module("versus_llama_cpp")
    asked: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def run(path: Path, *_: Any, depths: Any, together: Any) -> list[Any]:
        asked[path.name] = (tuple(depths), tuple(together))
        return []

    class Silent:
        def __enter__(self) -> "Silent":
            return self

        def __exit__(self, *_: object) -> None:
            pass

    names = [
        "qwen2-1.5b-Q4_K_M",
        "qwen2-1.5b-IQ2_XXS",
        "phi2-2.7b-Q4_K_M",
        "gpt-oss-20b-10-layers-MXFP4",
    ]
    monkeypatch.setattr(versus, "run", run)
    monkeypatch.setattr(versus, "Peer", lambda *_, **__: Silent())
    monkeypatch.setattr(versus, "interpreter", lambda path: path)
    monkeypatch.setattr(versus, "candidates", lambda _: [(n, lambda n=n: Path(n)) for n in names])
    monkeypatch.setattr(versus.Machine, "bytes_per_second", lambda _: 1e9)
    monkeypatch.setattr(versus.Machine, "operations_per_second", lambda _: 1e12)
    monkeypatch.setattr(versus, "READ_BYTES", 1)
    monkeypatch.setattr(sys, "argv", ["versus_llama_cpp.py"])
    versus.main()
    assert asked == {
        names[0]: ((0, 2048), (8, 32)),
        names[1]: ((0,), (8, 32)),
        names[2]: ((0, 2048), (8, 32)),
        names[3]: ((0,), ()),
    }
    monkeypatch.setattr(sys, "argv", ["versus_llama_cpp.py", "--sequences", "4", "--only", "phi"])
    asked.clear()
    versus.main()
    assert asked == {names[2]: ((0, 2048), (4,))}


def test_every_type_of_cache_is_timed_at_every_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = import_module("bench_kv_types")
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    monkeypatch.setattr(bench, "PROMPT", 9)
    monkeypatch.setattr(bench, "GENERATED", 3)
    monkeypatch.setattr(bench.models, "synthetic", lambda *_: path)
    monkeypatch.setattr(sys, "argv", ["x", "tiny", "--depths", "0,70", "--rounds", "2"])
    bench.main()
    heading, types, *lines = capsys.readouterr().out.splitlines()
    assert heading == "tiny, 2 threads"
    assert types.split() == ["test", "depth", "f32", "f16", "bf16", "q8_0", "q4_0"]
    assert [tuple(line.split()[:2]) for line in lines] == [
        ("decode", "0"),
        ("prompt", "0"),
        ("decode", "70"),
        ("prompt", "70"),
    ]
    for line in lines:
        rates, ratios = line.split()[2::2], line.split()[3::2]
        assert all(float(rate) > 0 for rate in rates)
        assert ratios[1] == "1.00x"


def test_a_curve_of_a_tiny_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With Ingot itself in the place of a peer."""
    bench, stepper = import_module("bench_sequences"), import_module("stepper")
    path = write_tiny_llama(tmp_path / "tiny.gguf")

    class Twin:
        def __init__(self, *_: object, **__: object) -> None:
            self._stepper: Any = None

        def open(self, model: Path, **sizes: int) -> None:
            self._stepper = stepper.Stepper(model, **sizes)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stepper, name)

        def __enter__(self) -> "Twin":
            return self

        def __exit__(self, *_: object) -> None:
            self._stepper.close()

    monkeypatch.setattr(bench, "Peer", Twin)
    monkeypatch.setattr(bench, "PROMPT", 9)
    monkeypatch.setattr(bench, "READ_BYTES", 1 << 20)
    monkeypatch.setattr(bench.models, "synthetic", lambda *_: path)
    python = script(tmp_path / "python", "echo True")
    arguments = ["--threads", "1,2", "--sequences", "1,3", "--peer", f"twin={python}"]
    target = tmp_path / "curves.json"
    monkeypatch.setattr(sys, "argv", ["x", "tiny", *arguments, "--json", str(target)])
    bench.main()
    (curve,) = json.loads(target.read_text())
    tests = [(p["threads"], p["sequences"], p["tokens"]) for p in curve["points"]]
    assert tests == [(n, *test) for n in (1, 2) for test in ((1, 1), (3, 3), (0, 9))]
    for point in curve["points"]:
        assert point["rates"].keys() == {"Ingot", "twin"}
        assert point["ratios"].keys() == {"twin"}
        assert min(*point["rates"].values(), point["ratios"]["twin"], point["read"]) > 0
    with GgufLoader(path) as file:
        matrices = [t.nbytes for t in file.tensors.values() if len(t.shape) > 1]
        assert sum(curve["rows"].values()) == sum(matrices)
    assert curve["operations"] > 10
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["model", "threads", "engine", "1", "seq", "3", "seq", "prompt"]
    assert [line.split()[-4 if "ratio" not in line else 0] for line in said[1:4]] == [
        "Ingot",
        "twin",
        "ratio",
    ]
    cores = import_module("model_of_cores")
    model = cores.CoreModel.fit(
        cores.points_of(curve), cores.machine_of(curve, None), cores.network_of(curve)
    )
    assert all(model.seconds(test, 64) > 0 for test in model.work)
