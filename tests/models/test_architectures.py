"""What holds of every architecture: names that the `gguf` package knows, one short file each."""

import errno
import os
import re
from itertools import chain
from pathlib import Path
from statistics import median

import gguf
import pytest

import ingot
from ingot.errors import ModelError
from ingot.gguf import GgufLoader, GgufWriter
from ingot.models import architectures, build_graph, described, module_name
from models.gguf_names import ARCHITECTURES, NEWER_KEYS
from models.recipes import RECIPES
from models.tiny_models import Fixture

SOURCE = Path(ingot.__file__).parent
FILES = [SOURCE / "models" / f"{module_name(name)}.py" for name in architectures()]
NATIVE = [
    path
    for path in (Path(__file__).parents[2] / "native").rglob("*")
    if path.suffix in {".cpp", ".h", ".py", ".txt"}
]


def known_keys(group: type = gguf.Keys) -> set[str]:
    """Every key of the package's tables, `{arch}` left open."""
    found = {value for value in vars(group).values() if isinstance(value, str)}
    inner = [value for value in vars(group).values() if isinstance(value, type)]
    return found.union(*map(known_keys, inner))


@pytest.mark.parametrize("name", RECIPES)
def test_names_are_those_of_the_format(name: str) -> None:
    """The fixtures' tensors and keys, and so those that the architectures read."""
    fixture = Fixture.load(name)
    kinds = gguf.MODEL_TENSORS[ARCHITECTURES[fixture.architecture]]
    patterns = {gguf.TENSOR_NAMES[kind] for kind in kinds}
    if RECIPES[name].ranker:  # of any architecture
        patterns.add(gguf.TENSOR_NAMES[gguf.MODEL_TENSOR.CLS_OUT])
    for tensor in chain(fixture.shapes, fixture.constants):
        stem, _, ending = tensor.rpartition(".")
        if ending in {"ssm_a", "ssm_d", "ffn_norm"}:
            stem = tensor
        else:
            assert ending in {"weight", "bias", "scale"}
        assert re.sub(r"blk\.\d+\.", "blk.{bid}.", stem) in patterns, tensor
    keys = known_keys() | NEWER_KEYS.keys()
    for key in fixture.metadata:
        assert key in keys or f"{{arch}}.{key}" in keys, key


def test_files_are_short() -> None:
    lengths = {path.stem: len(path.read_text().splitlines()) for path in FILES}
    assert median(lengths.values()) < 60
    assert max(lengths.values()) <= 150, lengths


# What else has the name of an architecture: kinds of vocabularies (`tokenizer.ggml.model`), which
# a checkpoint's tokenizer becomes, ...
KINDS = {"bert", "gemma4", "gpt2", "llama", "t5"}
NAMESAKES = {
    "tokenizer/special_tokens.py": KINDS,
    "tokenizer/build.py": {*KINDS, "modern-bert", "phi3"},  # parts of general.name
    "convert/conversion.py": KINDS,
    "convert/ranked_vocabulary.py": {*KINDS, "qwen2"},  # a pre-tokenizer
    "convert/sentencepiece_model.py": KINDS,
    "convert/tokenizer_json.py": KINDS,
    "tokenizer/pretokenizers.py": set(architectures()),  # `tokenizer.ggml.pre`
    "reply/style.py": {"deepseek", "granite"},  # ways to write tool calls and reasoning
    # ... and the architecture of a file that is written to time small operations.
    "cli/doctor/calibration.py": {"llama"},
}


def test_no_architecture_is_named_elsewhere() -> None:
    """A network is nobody else's business than its file's."""
    names = "|".join(map(re.escape, architectures()))
    literal = re.compile(rf"""["']({names})["']""")
    own = {f"models/{module_name(name)}.py": {name} for name in architectures()}
    allowed = own | NAMESAKES
    found = {
        path.relative_to(SOURCE).as_posix(): set(literal.findall(path.read_text(encoding="utf-8")))
        for path in SOURCE.rglob("*.py")
    }
    assert not {file for file, named in found.items() if named - allowed.get(file, set())}
    for path in NATIVE:
        assert not literal.findall(path.read_text(encoding="utf-8")), path
    assert all(found[file] for file in NAMESAKES)  # none is an exception without need
    for path in (SOURCE / "tokenizer").glob("*.py"):
        assert "general.architecture" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("name", architectures())
def test_each_says_what_is_special(name: str) -> None:
    text = described(name)
    assert re.match(r"[\w.() ,-]+: ", text), text
    assert text.endswith(".")


@pytest.mark.parametrize(
    ("name", "near"),
    [("lama", "llama"), ("qwen25", "qwen2"), ("gemma5", "gemma3"), ("comand-r", "command-r")],
)
def test_an_architecture_that_is_nearly_known(name: str, near: str, tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "model.gguf")
    writer.add("general.architecture", name)
    writer.write()
    with (
        GgufLoader(tmp_path / "model.gguf") as model,
        pytest.raises(ModelError, match=rf"'{name}' is not supported \(near it: .*{near}"),
    ):
        build_graph(model)


def test_they_are_known_without_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "listdir", refuse)
    assert {"llama", "gpt-oss", "seed_oss"} <= set(architectures())
