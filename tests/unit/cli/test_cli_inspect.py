"""`ingot inspect` on small files: the person's view, the program's view, one tensor."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_runs import INGOT, Run

from ingot.gguf import GgufWriter


def inspect_json(run: Run, *arguments: object) -> Any:
    ran = run("inspect", "--json", *arguments)
    assert (ran.status, ran.err) == (0, "")
    return json.loads(ran.out)


def test_the_view_of_a_person(run: Run, tiny: Path) -> None:
    ran = run("inspect", tiny)
    assert (ran.status, ran.err) == (0, "")
    for part in (
        "architecture  llama",
        "size          ",
        "parameters    388",
        "quantization  Q8_0, ",
        "context       128 tokens",
        "layers        2, feed-forward 96",
        "attention     4 heads, 2 key/value heads, head size 16",
        "vocabulary    3 tokens, gpt2, pre-tokenizer default",
        "memory for 128 tokens",
        "blk.*.attn_q.weight",
        "chat template",
        "line 15",
        "... 24 more lines",
    ):
        assert part in ran.out
    assert "line 16" not in ran.out
    assert "blk.1.attn_q.weight" not in ran.out


def test_what_the_file_says_does_not_steer_the_terminal(run: Run, tiny: Path) -> None:
    ran = run("inspect", tiny)
    assert "\x1b" not in ran.out
    assert r"Tiny [red]\x1b[31m" in ran.out


def test_every_tensor(run: Run, tiny: Path) -> None:
    lines = run("inspect", "--tensors", tiny).out.splitlines()
    assert ["blk.1.attn_q.weight", "Q8_0", "2", "x", "32", "68", "bytes"] in [
        line.split() for line in lines
    ]
    assert sum(line.startswith("blk.") for line in lines) == 4


def test_the_view_of_a_program(run: Run, tiny: Path) -> None:
    found = inspect_json(run, tiny)
    assert found["path"] == str(tiny)
    assert found["files"] == [str(tiny)]
    assert found["file_size"] == tiny.stat().st_size
    assert found["gguf_version"] == 3
    assert found["name"] == "Tiny [red]\x1b[31m"
    assert found["parameters"] == 128 + 2 * 64 + 2 * 64 + 4
    assert found["quantization"] == "Q8_0"
    assert (found["context_length"], found["embedding_length"]) == (128, 64)
    assert (found["layers"], found["heads"], found["kv_heads"]) == (2, 4, 2)
    assert found["feed_forward_length"] == 96
    assert found["chat_template"].splitlines()[-1] == "line 39"
    assert found["types"][0] == {
        "type": "F32",
        "tensors": 2,
        "weights": 128,
        "bytes": 512,
        "share": 512 / 936,
        "bits_per_weight": 32,
    }
    assert [share["type"] for share in found["types"]] == ["F32", "F16", "Q8_0", "I64"]
    assert found["metadata"]["llama.block_count"] == 2
    assert found["metadata"]["llama.rope.freq_base"] is None
    assert found["metadata"]["tokenizer.ggml.tokens"] == {"array": "string", "count": 3}
    assert found["tensors"][2]["name"] == "blk.0.attn_q.weight"
    assert found["tensors"][2]["shape"] == [2, 32]
    assert found["tensors"][2]["bytes"] == 68


def test_memory(run: Run, tiny: Path) -> None:
    per_token = 2 * 2 * 2 * 16  # layers, keys and values, KV heads, length
    memory = inspect_json(run, tiny)["memory"]
    assert memory["context"] == memory["batch"] == 128
    assert memory["kv_type"] == "F16"
    assert memory["weights"] == 936
    assert memory["kv_cache"] == 128 * per_token * 2
    assert memory["total"] == memory["weights"] + memory["kv_cache"] + memory["arena"]
    changed = inspect_json(run, "--context", 1000, "--kv-type", "fp8", tiny)["memory"]
    assert changed["kv_cache"] == 1000 * (per_token + per_token // 16 * 2)  # a scale for a head
    assert (changed["context"], changed["batch"]) == (1000, 512)
    assert run("inspect", "--context", 0, tiny).status == 2
    assert run("inspect", "--kv-type", "q2", tiny).status == 2


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_split_file_by_any_part(run: Run, split: list[Path], tiny: Path, part: int) -> None:
    found = inspect_json(run, split[part])
    whole = inspect_json(run, tiny)
    assert found["files"] == [str(path) for path in split]
    assert found["path"] == str(split[0])
    assert found["file_size"] == sum(path.stat().st_size for path in split)
    for key in ("parameters", "types", "memory", "quantization", "chat_template"):
        assert found[key] == whole[key]
    assert found["tensors"][-1]["file"] == str(split[2])
    assert "in 3 files" in run("inspect", split[part]).out


def test_a_file_with_nothing_in_it(run: Run, tmp_path: Path) -> None:
    path = GgufWriter(tmp_path / "empty.gguf").write()[0]
    found = inspect_json(run, path)
    assert found["memory"] is None
    assert found["bits_per_weight"] is None
    assert found["types"] == found["tensors"] == []
    assert "no tensors" in run("inspect", path).out


def test_a_model_that_states_no_context(run: Run, tmp_path: Path) -> None:
    writer = GgufWriter(tmp_path / "short.gguf")
    writer.add("general.architecture", "x")
    writer.add("x.block_count", 3)
    writer.add("x.embedding_length", 8)
    writer.add("x.attention.head_count", 2)
    writer.add("x.attention.head_count_kv", np.array([1, 2, 0], np.int32))
    writer.add_tensor("weight", np.zeros(8, np.float32))
    path = writer.write()[0]
    assert "--context" in run("inspect", path).out
    assert "0 to 2 key/value heads" in run("inspect", path).out
    assert inspect_json(run, path)["kv_heads"] == [1, 2, 0]
    assert inspect_json(run, path, "--context", 10)["memory"]["kv_cache"] == 10 * 3 * 2 * 4 * 2


def test_one_tensor(run: Run, tiny: Path) -> None:
    ran = run("inspect", "--tensor", "token_embd.weight", tiny)
    assert ran.status == 0
    for part in ("F16, 256 bytes", "2 x 64, 128 values", "minimum     -64", "maximum     63"):
        assert part in ran.out
    assert "█" in ran.out
    found = inspect_json(run, "--tensor", "token_embd.weight", tiny)
    assert (found["min"], found["max"], found["mean"], found["zeros"]) == (-64, 63, -0.5, 1)
    assert found["std"] == pytest.approx(np.arange(128).std())
    assert sum(part["count"] for part in found["histogram"]) == 128
    assert found["histogram"][0] == {"low": -64, "high": -64 + 127 / 16, "count": 8}


def test_a_tensor_of_integers_keeps_its_digits(run: Run, tiny: Path) -> None:
    found = inspect_json(run, "--tensor", "numbers", tiny)
    assert found["max"] == 2**62
    assert type(found["max"]) is int
    assert (found["min"], found["values"], found["zeros"]) == (-3, 4, 1)


def test_a_tensor_name_that_is_nearly_right(run: Run, tiny: Path) -> None:
    ran = run("inspect", "--tensor", "blk.0.attn_k.weight", tiny)
    assert (ran.status, ran.out) == (2, "")
    assert "did you mean blk.0.attn_q.weight" in ran.err
    assert "--tensors" in run("inspect", "--tensor", "zzz", tiny).err


@pytest.mark.parametrize("cut", [0, 3, 8, 24, 200, -1])
def test_a_bad_file_is_one_line_and_status_2(run: Run, tiny: Path, cut: int) -> None:
    content = tiny.read_bytes()
    tiny.write_bytes(content[:cut])
    ran = run("inspect", tiny)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {tiny}: ")
    assert ran.err.count("\n") == 1


def in_terminal(columns: int, *arguments: object) -> str:
    """What a command shows on a terminal of that width."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    command = [str(INGOT), *map(str, arguments)]
    with subprocess.Popen(command, stdout=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            shown += piece
        assert process.wait(60) == 0
    os.close(leader)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(tmp_path: Path, columns: int) -> None:
    writer = GgufWriter(tmp_path / "long.gguf")
    writer.add_tensor("name" * 15, np.zeros((2, 2, 2, 10**6), np.int8))
    shown = in_terminal(columns, "inspect", "--tensors", writer.write()[0])
    assert "\x1b[1;36mtypes" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert all(len(line) <= columns for line in plain.splitlines())
    assert plain.count("name") > 10  # folded, not cut
    assert "2 x 2 x 2 x 1000000" in plain


def test_no_color(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown = in_terminal(80, "inspect", tiny)
    assert "36m" not in shown


def test_an_output_that_lacks_the_characters(
    run_process: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ran = run_process("inspect", "--tensor", "token_embd.weight", tiny)
    assert (ran.status, ran.err) == (0, "")
    assert r"\u2588" in ran.out
