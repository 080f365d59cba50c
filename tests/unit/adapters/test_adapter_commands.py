"""`ingot merge-lora` and `ingot convert --lora`, and `--lora` of `ingot run`."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from checkpoints import write_llama
from ingot import LLM
from ingot.cli import app
from ingot.cli.shared.adapter_flags import AdapterFlags
from ingot.errors import ConfigError
from ingot.gguf import GgmlType, GgufLoader
from ingot.quant import decode
from tiny_adapters import EVERYTHING, write_random_adapter
from tiny_llama import write_tiny_llama
from unit.adapters.test_adapter_files import write_peft

IDS = [256, 72, 101, 108, 108, 111]
EXACT = {"threads": 1, "precision": "exact", "kv_type": "f32"}


def run(*arguments: object) -> str:
    """Run a command; what it prints, or its error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.output.strip() if result.exit_code == 0 else f"failed: {result.output}"


def logits(path: Path, **options: object) -> np.ndarray:
    choice = options.pop("adapter", None)
    with LLM(path, **EXACT, **options) as llm:  # type: ignore[arg-type]
        return llm.logits(IDS, adapter=choice)  # type: ignore[arg-type]


def close(found: np.ndarray, wanted: np.ndarray, error: float = 2e-3) -> None:
    np.testing.assert_allclose(found, wanted, atol=error * np.abs(wanted).max())


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("merge") / "base.gguf")


@pytest.mark.parametrize(
    "names", [EVERYTHING[:-2], ["token_embd.weight"], ["output.weight"], EVERYTHING]
)
def test_a_merged_model_computes_what_the_adapter_does(
    base: Path, names: list[str], tmp_path: Path
) -> None:
    one = write_random_adapter(tmp_path / "one.gguf", names=names, seed=1)
    merged = tmp_path / "merged.gguf"
    assert str(merged) in run("merge-lora", base, one, "-o", merged, "--type", "f32")
    close(logits(merged), logits(base, adapters={"a": one}, adapter="a"))
    before, after = GgufLoader(base).tensors, GgufLoader(merged).tensors
    unties = {"token_embd.weight", "output.weight"} & set(names)
    assert after.keys() - before.keys() == ({"output.weight"} if unties else set())
    for name, tensor in after.items():
        if name not in names and name in before:
            assert tensor.data.tobytes() == before[name].data.tobytes()


def test_scales_types_and_several_adapters(base: Path, tmp_path: Path) -> None:
    names = EVERYTHING[:-2]
    one = write_random_adapter(tmp_path / "one.gguf", names=names, seed=1)
    two = write_random_adapter(tmp_path / "two.gguf", names=names, rank=2, seed=2)
    merged = tmp_path / "merged.gguf"
    run("merge-lora", base, f"{one}:0.5", f"{two}:-0.25", "-o", merged)
    given = {"adapters": {"a": one, "b": two}, "adapter": {"a": 0.5, "b": -0.25}}
    close(logits(merged), logits(base, **given), 5e-2)
    types = {name: tensor.type for name, tensor in GgufLoader(base).tensors.items()}
    found = GgufLoader(merged).tensors
    assert {name: tensor.type for name, tensor in found.items()} == types
    half = tmp_path / "half.gguf"
    run("merge-lora", base, f"{one}:0.5", "-o", half, "--type", "f16")
    tensors = GgufLoader(half).tensors
    assert {tensors[name].type for name in names} == {GgmlType.F16}
    assert np.isfinite(decode(tensors[names[0]].data, GgmlType.F16)).all()


def test_what_cannot_be_merged(base: Path, tmp_path: Path) -> None:
    one = write_random_adapter(tmp_path / "one.gguf")
    out = tmp_path / "out.gguf"
    assert "there is no tensor type 'q9'" in run("merge-lora", base, one, "-o", out, "--type", "q9")
    assert "--type" in run("merge-lora", base, one, "-o", out, "--type", "q4_k")  # rows of 64
    assert "there is no adapter" in run("merge-lora", base, tmp_path / "x", "-o", out)
    assert "is no adapter" in run("merge-lora", base, base, "-o", out)
    assert not out.exists()


def test_a_folder_of_peft_becomes_a_file(tmp_path: Path) -> None:
    model = write_llama(tmp_path / "model")
    folder = write_peft(tmp_path / "style", base_model_name_or_path=str(model))
    file = tmp_path / "style.gguf"
    assert str(file) in run("convert", folder, "--lora", "-o", file, "--type", "f16")
    tensors = GgufLoader(file).tensors
    assert {tensor.type for tensor in tensors.values()} == {GgmlType.F16}
    ids = [1, 2, 3, 4]
    with LLM(model, **EXACT, adapters={"folder": folder, "file": file}) as llm:  # type: ignore[arg-type]
        close(llm.logits(ids, adapter="file"), llm.logits(ids, adapter="folder"))
        assert np.abs(llm.logits(ids, adapter="file") - llm.logits(ids)).max() > 1e-3
    assert str(file) in run("convert", folder, "--lora", "--base", model, "-o", file)


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    folder = write_peft(tmp_path / "style", base_model_name_or_path="somebody/model")
    assert "name it with --base" in run("convert", folder, "--lora")
    model = write_llama(tmp_path / "model")
    assert "f32, f16 or bf16" in run(
        "convert", folder, "--lora", "--base", model, "--type", "q4_k_m"
    )
    assert "needs --lora" in run("convert", model, "--base", model)
    assert "not a folder" in run("convert", tmp_path / "none", "--lora", "--base", model)


def test_run_with_an_adapter(base: Path, tmp_path: Path) -> None:
    one = write_random_adapter(tmp_path / "one.gguf", seed=1)
    plain = ["run", "-m", base, "--raw", "-n", 12, "--temperature", 0, "-t", 1, "hello"]
    assert run(*plain).splitlines()[0] != run(*plain, "--lora", one).splitlines()[0]
    scaled = run(*plain, "--lora-scaled", f"{one}:0")
    assert scaled.splitlines()[0] == run(*plain).splitlines()[0]


def test_commas_separate_adapters(tmp_path: Path) -> None:
    """As in llama-server's options; a file whose name has a comma is one adapter."""
    odd = tmp_path / "x,y.gguf"
    odd.write_bytes(b"")
    flags = AdapterFlags(
        lora=["a.gguf,mine=b.gguf", str(odd), f"odd={odd}"],
        lora_scaled=["c.gguf:0.5,d=folder/d.gguf:-2", f"e={odd}:3"],
    )
    assert flags.fields() == {
        "adapters": {
            "a": Path("a.gguf"),
            "mine": Path("b.gguf"),
            "x,y": odd,
            "odd": odd,
            "c": Path("c.gguf"),
            "d": Path("folder/d.gguf"),
            "e": odd,
        },
        "adapter_scales": {
            **dict.fromkeys(("a", "mine", "x,y", "odd"), 1.0),
            **{"c": 0.5, "d": -2.0, "e": 3.0},
        },
    }
    many = [f"adapter-{number:03}.gguf" for number in range(30)]  # longer than any file's name
    found = AdapterFlags(lora=[",".join(many)]).fields()["adapters"]
    assert found
    assert [path.name for path in found.values()] == many
    with pytest.raises(ConfigError, match="two adapters have the name 'a'"):
        AdapterFlags(lora=["a.gguf,a.gguf"]).fields()
    with pytest.raises(ConfigError, match="must be PATH:SCALE"):
        AdapterFlags(lora_scaled=["a.gguf:1,b.gguf"]).fields()
