"""`ingot inspect --graph`: text, JSON and files."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_runs import Run

from models.tiny_models import Fixture
from tiny_llama import FEED_FORWARD, LAYERS, WIDTH, write_tiny_llama


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


def test_the_graph_as_text(run: Run, model: Path) -> None:
    ran = run("inspect", "--graph", model)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "graph of tiny.gguf, fused, as it runs"
    assert lines[1] == "16 operations, 18 values; bytes are per token"
    assert lines[3].split() == (
        ["#", "operation", "reads", "weights", "writes", "bytes", "offset", "lifetime"]
    )
    first = " ".join(lines[4].split())
    assert first == "0 embed token_embd.weight 258 x 64 token_embd 256 0 0 to 4"
    assert any(line.split()[:2] == ["5", "linear,"] and "silu(gate) * up" in line for line in lines)
    assert lines[-3].startswith("arena     ")
    assert lines[-2] == "logits    1032 bytes per token that needs them, outside the arena"
    assert lines[-1] == "KV cache  256 bytes per token as F16, layers without a window"


def test_the_graph_before_fusion(run: Run, model: Path) -> None:
    out = run("inspect", "--graph", "--unfused", model).out
    assert out.startswith("graph of tiny.gguf, before fusion\n")
    assert "blk.0.attn_q.rope" in out
    assert "blk.0.attn_q.rope" not in run("inspect", "--graph", model).out


@pytest.mark.parametrize("flags", [[], ["--unfused"]])
def test_the_graph_as_json(run: Run, model: Path, flags: list[str]) -> None:
    ran = run("inspect", "--graph", "--json", "--kv-type", "q8_0", *flags, model)
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert found["fused"] == (not flags)
    operations, values = found["operations"], {value["name"]: value for value in found["values"]}
    assert {operation["layer"] for operation in operations} == {None, *range(LAYERS)}
    act = values["blk.0.ffn_act"]
    assert (act["width"], act["bytes_per_token"]) == (FEED_FORWARD, 4 * FEED_FORWARD)
    writer = next(n for n, op in enumerate(operations) if "blk.0.ffn_act" in op["writes"])
    reader = next(n for n, op in enumerate(operations) if "blk.0.ffn_act" in op["reads"])
    assert (act["first"], act["last"]) == (writer, reader)
    assert act["offset"] + act["bytes_per_token"] <= found["arena_bytes_per_token"]
    assert values["logits"]["offset"] is values["logits"]["first"] is None
    assert found["logits_bytes_per_token"] == values["logits"]["bytes_per_token"]
    assert found["arena_bytes_per_token"] < found["unshared_bytes_per_token"]
    embedding = {"name": "token_embd.weight", "shape": [258, WIDTH], "first_row": 0}
    assert operations[0]["weights"] == [embedding]
    assert found["kv_cache"] == {
        "type": "Q8_0",
        "groups": [{"window": 0, "bytes_per_token": LAYERS * 2 * 34}],
        "state_bytes": 0,
    }


def test_the_graph_of_a_recurrent_model(run: Run, tmp_path: Path) -> None:
    model = Fixture.load("mamba2-groups").write(tmp_path / "mamba2.gguf")
    out = run("inspect", "--graph", model).out
    assert "scan, 8 heads in 2 groups, 7 states" in out
    assert "convolve, 4 taps" in out
    # 3 layers of 128 channels: states of 7, and 3 rows of the channels and of 2 groups' b and c,
    # each of which is rounded up to 64 bytes
    state = 3 * 4 * (128 * 7 + 3 * 128 + 2 * 3 * 16)
    assert out.splitlines()[-1] == f"state   {state} bytes per sequence, at any length"
    found = json.loads(run("inspect", "--graph", "--json", model).out)
    assert found["kv_cache"] == {"type": "F16", "groups": [], "state_bytes": state}
    drawn = run("inspect", "--graph", "-o", tmp_path / "x.svg", model)
    assert (drawn.status, drawn.out) == (0, "")


def test_drawings(run: Run, model: Path, tmp_path: Path) -> None:
    svg, dot = tmp_path / "graph.SVG", tmp_path / "graph.dot"
    ran = run("inspect", "--graph", "-o", svg, model)
    assert (ran.status, ran.out, ran.err) == (0, "", f"wrote {svg}\n")
    assert "layer 0" in svg.read_text()
    assert ElementTree.fromstring(svg.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert run("inspect", "--graph", "--unfused", "-o", dot, model).status == 0
    assert dot.read_text().startswith("digraph ")
    assert 'label="tiny.gguf, before fusion"' in dot.read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--graph", "-o", "x.png"], "'x.png'; its name must end in one of .svg, .dot, .gv"),
        (["-o", "x.svg"], "--unfused and --output need --graph"),
        (["--unfused"], "need --graph"),
    ],
)
def test_bad_flags(run: Run, model: Path, flags: list[str], message: str) -> None:
    ran = run("inspect", *flags, model)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


def test_a_file_that_cannot_be_written(run: Run, model: Path, tmp_path: Path) -> None:
    ran = run("inspect", "--graph", "-o", tmp_path / "none" / "x.svg", model)
    assert ran.status == 2
    assert (
        ran.err
        == f"error: {tmp_path / 'none' / 'x.svg'} cannot be written: No such file or directory\n"
    )


def test_a_model_that_cannot_be_run_has_no_graph(run: Run, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "x.gguf", keys={"general.architecture": "lama"})
    ran = run("inspect", "--graph", model)
    assert (ran.status, ran.out) == (2, "")
    assert "architecture 'lama' is not supported (near it: llama" in ran.err
