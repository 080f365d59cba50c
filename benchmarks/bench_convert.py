"""How fast `ingot convert` is, and how much memory it takes.

    python benchmarks/bench_convert.py [--gigabytes 1] [--folder FOLDER] [--only bf16 q4_k_m ...]

A checkpoint of a Llama with random weights (BF16, two files) is written, and converted to each
type by a process of its own. The rate is that of the bytes read. The memory is the largest resident
size, which counts mapped pages of the checkpoint, too. `copy` is a copy of the checkpoint's bytes
by `shutil`, for comparison. Both find the checkpoint in the page cache, and both end when the disk
has what they wrote.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from tempfile import TemporaryDirectory

import numpy as np

WIDTH, INNER, HEADS, KV_HEADS, ROWS = 2048, 5632, 32, 4, 32000
KEYS = WIDTH // HEADS * KV_HEADS
LAYER = {
    "input_layernorm": (WIDTH,),
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (KEYS, WIDTH),
    "self_attn.v_proj": (KEYS, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "post_attention_layernorm": (WIDTH,),
    "mlp.gate_proj": (INNER, WIDTH),
    "mlp.up_proj": (INNER, WIDTH),
    "mlp.down_proj": (WIDTH, INNER),
}
TYPES = ("bf16", "f16", "q8_0", "q4_k_m")
FILES = 2


def tensors(layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a Llama."""
    yield "model.embed_tokens.weight", (ROWS, WIDTH)
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (ROWS, WIDTH)
    for layer in range(layers):
        for name, shape in LAYER.items():
            yield f"model.layers.{layer}.{name}.weight", shape


def write_file(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """One safetensors file; every tensor is cut from the same random numbers."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    most = max(int(np.prod(shape)) for shape in shapes.values())
    values = np.random.default_rng(7).standard_normal(most, np.float32) * np.float32(0.02)
    data = (values.view(np.uint32) >> 16).astype(np.uint16)
    with path.open("wb") as file:
        file.write(pack("<Q", len(text)) + text)
        for shape in shapes.values():
            file.write(data[: int(np.prod(shape))].tobytes())


def write_checkpoint(folder: Path, size: float) -> int:
    """A checkpoint of about so many bytes; its exact size."""
    layer = sum(2 * int(np.prod(shape)) for shape in LAYER.values())
    layers = max(1, round((size - 4 * ROWS * WIDTH) / layer))
    shapes = dict(tensors(layers))
    names = list(shapes)
    files = {f"model-{number + 1:05}-of-{FILES:05}.safetensors": number for number in range(FILES)}
    for file, number in files.items():
        write_file(folder / file, {name: shapes[name] for name in names[number::FILES]})
    where = {name: list(files)[at % FILES] for at, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "vocab_size": ROWS,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = {chr(code): code - 33 for code in range(33, 127)}
    tokenizer = {
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        "pre_tokenizer": {"type": "ByteLevel", "use_regex": True},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return sum((folder / file).stat().st_size for file in files)


def run(arguments: list[str]) -> tuple[float, int]:
    """Seconds and the largest resident size of a process."""
    start = time.perf_counter()
    silent = [(os.POSIX_SPAWN_OPEN, output, os.devnull, os.O_WRONLY, 0) for output in (1, 2)]
    process = os.posix_spawn(arguments[0], arguments, os.environ, file_actions=silent)
    _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"{' '.join(arguments)} failed")
    return time.perf_counter() - start, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Write the checkpoint and convert it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, help="for the files")
    parser.add_argument("--only", nargs="+", default=TYPES, choices=TYPES)
    arguments = parser.parse_args()
    with TemporaryDirectory(dir=arguments.folder) as temporary:
        folder = Path(temporary) / "checkpoint"
        folder.mkdir()
        # In a process of its own: Linux counts what a process took before it started another one
        # as the other one's largest size, too.
        maker = multiprocessing.get_context("spawn").Process(
            target=write_checkpoint, args=(folder, arguments.gigabytes * 1e9)
        )
        maker.start()
        maker.join()
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        print(
            f"{size / 1e9:.2f} GB of BF16\n\n| | seconds | MB/s | memory, MB |\n|---|---|---|---|"
        )
        start = time.perf_counter()
        shutil.copytree(folder, Path(temporary) / "copy")
        for copied in (Path(temporary) / "copy").iterdir():
            with copied.open("rb+") as file:
                os.fsync(file.fileno())
        seconds = time.perf_counter() - start
        shutil.rmtree(Path(temporary) / "copy")
        print(f"| copy | {seconds:.1f} | {size / 1e6 / seconds:.0f} | |")
        ingot, out = str(Path(sys.executable).with_name("ingot")), Path(temporary) / "model.gguf"
        for kind in arguments.only:
            seconds, memory = run([ingot, "convert", str(folder), "-o", str(out), "--type", kind])
            out.unlink()
            print(f"| {kind} | {seconds:.1f} | {size / 1e6 / seconds:.0f} | {memory / 1e6:.0f} |")


if __name__ == "__main__":
    main()
