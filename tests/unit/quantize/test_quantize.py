"""Quantized files: types, contents, splits, and what is refused."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ingot.quantize
from ingot.cli import app
from ingot.errors import DiskSpaceError, QuantError
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, ValueType
from ingot.models import architectures, has_own_mix_rules
from ingot.quant import decode, encode
from ingot.quantize import parse_override, plan
from ingot.quantize.mixes import COPY, MIXES, ModelShape, choose_types, fitting, mix_of

LAYERS = 4


def write_model(
    path: Path, *, type: GgmlType = GgmlType.F16, parts: int = 1, architecture: str = "llama"
) -> Path:
    """A file like a Llama's, with key-value pairs of all kinds."""
    rng = np.random.default_rng(5)
    writer = GgufWriter(path)
    writer.add("general.architecture", architecture)
    writer.add("general.name", b"caf\xe9")  # not UTF-8
    writer.add("general.file_type", 1)
    writer.add(f"{architecture}.block_count", LAYERS)
    writer.add(f"{architecture}.attention.head_count", 8)
    writer.add(f"{architecture}.attention.head_count_kv", 2)
    writer.add("tokenizer.ggml.tokens", ["a", "b"], ValueType.STRING)
    writer.add("tokenizer.ggml.scores", [0.5, -1.5], ValueType.FLOAT64)
    names = {"token_embd.weight": (3, 256), "output.weight": (3, 256), "output_norm.weight": (256,)}
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_v", "attn_output", "ffn_down", "ffn_gate_inp"):
            names[f"blk.{layer}.{name}.weight"] = (6, 256)
        names[f"blk.{layer}.ffn_up.weight"] = (4, 288)  # not whole blocks of 256
        names[f"blk.{layer}.attn_norm.weight"] = (256,)
    for number, (name, shape) in enumerate(names.items()):
        if number and number % -(-len(names) // parts) == 0:
            writer.begin_part()
        values = rng.standard_normal(shape).astype("f4")
        kind = type if len(shape) > 1 and shape[-1] % type.block_size == 0 else GgmlType.F32
        writer.add_tensor(name, encode(values, kind), kind, shape)
    return writer.write()[0]


@pytest.fixture
def model(tmp_path: Path) -> Iterator[GgufLoader]:
    with GgufLoader(write_model(tmp_path / "model.gguf")) as loader:
        yield loader


@pytest.mark.parametrize(
    "name", [mix for mix in MIXES if not MIXES[mix].needs_imatrix and mix != "F32"]
)
def test_every_mix_is_written_and_near(name: str, model: GgufLoader, tmp_path: Path) -> None:
    (path,) = plan(model, MIXES[name]).write(tmp_path / "out.gguf")
    with GgufLoader(path) as found:
        assert found.tensors.keys() == model.tensors.keys()
        for key, tensor in found.tensors.items():
            before = model.tensors[key]
            assert tensor.shape == before.shape
            values = decode(before.data, before.type, before.shape)
            if tensor.type is before.type:
                np.testing.assert_array_equal(tensor.data, before.data)
                continue
            expected = encode(values, tensor.type)
            np.testing.assert_array_equal(tensor.data, expected.reshape(-1))
        assert found.metadata["general.file_type"] == MIXES[name].file_type


def test_keys_are_copied_as_they_are(model: GgufLoader, tmp_path: Path) -> None:
    plan(model, MIXES["Q8_0"]).write(tmp_path / "out.gguf")
    with GgufLoader(tmp_path / "out.gguf") as found:
        assert found.metadata.raw_string("general.name") == b"caf\xe9"
        assert list(found.metadata.strings("tokenizer.ggml.tokens")) == ["a", "b"]
        scores = found.metadata.entry("tokenizer.ggml.scores")
        assert scores.element_type is ValueType.FLOAT64
        assert found.metadata["general.quantization_version"] == 2


def test_pieces_do_not_change_the_file(
    model: GgufLoader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(model, MIXES["Q4_K_M"]).write(tmp_path / "whole.gguf")
    monkeypatch.setattr(ingot.quantize, "_PIECE", 600)  # two rows
    plan(model, MIXES["Q4_K_M"]).write(tmp_path / "pieces.gguf")
    assert (tmp_path / "whole.gguf").read_bytes() == (tmp_path / "pieces.gguf").read_bytes()


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf, 1e5])
def test_weights_that_would_spoil_their_block(weight: float, tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "model.gguf")
    writer.add("general.architecture", "llama")
    values = np.zeros((4, 256), "f4")
    values[2, 7] = weight
    for name in ("output.weight", "blk.0.ffn_up.weight"):
        writer.add_tensor(name, values)
    writer.write()
    with GgufLoader(tmp_path / "model.gguf") as model:
        reason = "NaN or infinite" if not np.isfinite(weight) else "up to 1e"
        with pytest.raises(QuantError, match=reason):
            plan(model, MIXES["Q4_K_M"]).write(tmp_path / "out.gguf")
        assert not (tmp_path / "out.gguf").exists()
        if np.isfinite(weight):
            plan(model, MIXES["BF16"]).write(tmp_path / "out.gguf")


def test_types_of_a_mix(model: GgufLoader) -> None:
    types = plan(model, mix_of("q4_k_m")).types
    assert types["output.weight"] is GgmlType.Q6_K
    assert types["blk.0.attn_q.weight"] is GgmlType.Q4_K
    assert types["blk.3.ffn_down.weight"] is GgmlType.Q6_K  # of the last eighth
    assert types["blk.0.ffn_down.weight"] is GgmlType.Q4_K
    assert types["blk.0.ffn_up.weight"] is GgmlType.Q5_0  # its rows are no blocks of 256
    assert types["blk.0.ffn_gate_inp.weight"] is GgmlType.F16  # a router
    assert types["blk.0.attn_norm.weight"] is GgmlType.F32


def test_the_size_is_known_before(model: GgufLoader, tmp_path: Path) -> None:
    planned = plan(model, MIXES["Q5_K_S"])
    planned.write(tmp_path / "out.gguf")
    with GgufLoader(tmp_path / "out.gguf") as found:
        assert planned.size == sum(tensor.nbytes for tensor in found.tensors.values())


def test_overrides(model: GgufLoader) -> None:
    overrides = [parse_override("ffn_down=q8_0"), parse_override(r"blk\.1\.ffn_down=BF16")]
    types = plan(model, MIXES["Q4_0"], [*overrides, parse_override("norm=q4_0")]).types
    assert types["blk.0.ffn_down.weight"] is GgmlType.Q8_0
    assert types["blk.1.ffn_down.weight"] is GgmlType.BF16
    assert types["blk.0.attn_norm.weight"] is GgmlType.F32


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ffn_down", "is not REGEX=TYPE"),
        ("=q8_0", "is not REGEX=TYPE"),
        ("ffn_down=q9", "no tensor can be written as 'q9'; the types are F32"),
        ("ffn_down=i8", "no tensor can be written as 'i8'"),
        ("ffn(=q8_0", "is not a regular expression"),
    ],
)
def test_overrides_that_cannot_be(text: str, reason: str) -> None:
    with pytest.raises(QuantError, match=reason):
        parse_override(text)


def test_quantizing_twice_must_be_allowed(tmp_path: Path) -> None:
    path = write_model(tmp_path / "small.gguf", type=GgmlType.Q8_0)
    with GgufLoader(path) as loader:
        with pytest.raises(QuantError, match=r"already quantized .* \(--allow-requantize\)"):
            plan(loader, MIXES["Q4_0"])
        types = plan(loader, MIXES["Q4_0"], allow_requantize=True).types
        assert types["blk.0.attn_q.weight"] is GgmlType.Q4_0


def test_a_copy_keeps_all_types(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", type=GgmlType.Q8_0, parts=3)
    with GgufLoader(path) as loader:
        (single,) = plan(loader, COPY).write(tmp_path / "copy.gguf")
        with GgufLoader(single) as copied:
            assert copied.metadata["general.file_type"] == 1  # as in the source
            for name, tensor in loader.tensors.items():
                assert copied.tensors[name].type is tensor.type
                np.testing.assert_array_equal(copied.tensors[name].data, tensor.data)
        change = parse_override("attn_q=q4_0")
        types = plan(loader, COPY, [change], allow_requantize=True).types
        changed = {name for name, kind in types.items() if kind is not loader.tensors[name].type}
        assert changed == {f"blk.{layer}.attn_q.weight" for layer in range(LAYERS)}
    out = tmp_path / "command.gguf"
    result = CliRunner().invoke(app, ["quantize", str(path), str(out), "copy"])
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == single.read_bytes()


def test_splits_are_kept(tmp_path: Path) -> None:
    with GgufLoader(write_model(tmp_path / "m.gguf", parts=3)) as loader:
        assert len(loader.files) == 3
        planned = plan(loader, MIXES["Q8_0"])
        (single,) = planned.write(tmp_path / "one.gguf")
        several = planned.write(tmp_path / "three.gguf", keep_split=True)
        assert [path.name for path in several] == [
            f"three-0000{number}-of-00003.gguf" for number in (1, 2, 3)
        ]
        with GgufLoader(several[1]) as parts, GgufLoader(single) as whole:
            for before, after in zip(loader.files, parts.files, strict=True):
                held = [t.name for t in loader.tensors.values() if t.path == before.path]
                assert held == [t.name for t in parts.tensors.values() if t.path == after.path]
            for name, tensor in whole.tensors.items():
                np.testing.assert_array_equal(tensor.data, parts.tensors[name].data)


def test_progress_counts_all_bytes(model: GgufLoader, tmp_path: Path) -> None:
    planned, reported = plan(model, MIXES["Q8_0"]), list[tuple[int, int]]()
    planned.write(tmp_path / "out.gguf", lambda *report: reported.append(report))
    done = [count for count, _ in reported]
    assert len(done) > LAYERS
    assert done == sorted(done)
    assert {total for _, total in reported} == {done[-1]}
    assert 0 <= done[-1] - planned.size < 32 * len(model.tensors)  # padding


def test_an_interrupted_file_never_appears(model: GgufLoader, tmp_path: Path) -> None:
    out = tmp_path / "out" / "model.gguf"
    out.parent.mkdir()
    out.write_bytes(b"what was there")

    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(model, MIXES["Q8_0"]).write(out, interrupt)
    assert [(path.name, path.read_bytes()) for path in out.parent.iterdir()] == [
        ("model.gguf", b"what was there")
    ]


def test_a_full_disk_is_seen_before(
    model: GgufLoader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("ingot.files.shutil.disk_usage", lambda _: Usage)
    with pytest.raises(DiskSpaceError, match="free some space"):
        plan(model, MIXES["Q8_0"]).write(tmp_path / "out.gguf")


@pytest.mark.parametrize(("given", "name"), [("q4_k", "Q4_K_M"), ("mxfp4", "MXFP4_MOE")])
def test_short_names(given: str, name: str) -> None:
    assert mix_of(given).name == name


def test_rows_that_no_block_divides() -> None:
    assert fitting(GgmlType.Q4_K, 100) is GgmlType.F16
    assert fitting(GgmlType.Q8_0, 33) is GgmlType.F16
    assert fitting(GgmlType.Q6_K, 64) is GgmlType.Q8_0
    assert fitting(GgmlType.Q1_0, 192) is GgmlType.Q4_0


def test_no_rule_needs_a_layer() -> None:
    """Names that no model has are matrices like others."""
    shape = ModelShape(layers=1, experts=8)
    for mix in MIXES.values():
        found = choose_types(mix, shape, {"x.weight": (2, 256), "ffn_down.weight": (2, 256)})
        assert all(re.fullmatch(r"[A-Z0-9_]+", kind.name) for kind in found.values())


def test_what_no_mix_applies_to() -> None:
    """llama.cpp needs some of it in F32: it cannot run convolutions of another type."""
    kept = (
        "blk.0.shortconv.conv.weight", "blk.0.ssm_conv1d.weight", "blk.0.ffn_gate_inp.weight",
        "blk.0.altup_correct_coef.weight", "blk.0.altup_predict_coef.weight",
        "enc.blk.0.attn_rel_b.weight", "position_embd.weight", "blk.0.attn_q_norm.weight",
        "blk.0.indexer.proj.weight",
    )  # fmt: skip
    matrices = ("blk.0.shortconv.in_proj.weight", "blk.0.altup_router.weight", "altup_proj.weight")
    shapes = dict.fromkeys((*kept, *matrices), (256, 256))
    for mix in ("F16", "Q4_K_M"):
        assert choose_types(MIXES[mix], ModelShape(layers=1), shapes).keys() == set(matrices)


def test_an_architecture_with_rules_of_its_own(tmp_path: Path) -> None:
    """Falcon, as llama.cpp quantizes it; no other architecture."""
    assert [name for name in architectures() if has_own_mix_rules(name)] == ["falcon"]
    assert not has_own_mix_rules("unheard-of")
    shapes = {"output.weight": (2, 256)} | {f"blk.{n}.ffn_down.weight": (2, 256) for n in range(16)}
    usual, own = (
        choose_types(MIXES["Q4_K_M"], ModelShape(layers=16, own_rules=own), shapes)
        for own in (False, True)
    )
    assert (usual["output.weight"], own["output.weight"]) == (GgmlType.Q6_K, GgmlType.Q8_0)
    last = "blk.15.ffn_down.weight"
    assert (usual[last], own[last]) == (GgmlType.Q6_K, GgmlType.Q5_K)
    for name, kind in (("falcon", "Q8_0"), ("llama", "Q6_K")):
        path = write_model(tmp_path / "model.gguf", architecture=name)
        result = CliRunner().invoke(app, ["quantize", str(path), "x", "q6_k", "--dry-run"])
        assert re.search(rf"output\.weight +3 x 256 +F16 +{kind}", result.output), result.output


@pytest.mark.parametrize(
    ("layers", "shared", "kind"),
    [(80, 8, GgmlType.Q5_K), (80, 1, GgmlType.Q4_K), (79, 8, GgmlType.Q4_K)],
)
def test_small_value_matrices_of_large_models(layers: int, shared: int, kind: GgmlType) -> None:
    shapes = {f"blk.{layer}.attn_v.weight": (2, 256) for layer in range(layers)}
    found = choose_types(MIXES["Q4_K_S"], ModelShape(layers, queries_per_key=shared), shapes)
    assert found["blk.40.attn_v.weight"] is kind
