"""What writes files in Ingot: how it writes an old and a new state, and reads them.

The store, which needs a cache and a package index, has such a test beside its others.

Each writer works in an empty folder of its own. `read` gives what a user would get.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from ingot.chat import ChatSession, Exchange
from ingot.cli.chat import reading
from ingot.files import FileRange, write_file
from ingot.gguf import GgmlType, GgufLoader, GgufWriter
from ingot.graph.kv_layout import BLOCK_TOKENS, KvGroup, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache.saved import Header, SavedText, read_saved
from ingot.sampling import SamplingParams

NOTHING = None  # what is read before anything was written
TORN_SET = "a model whose first part is missing"


@dataclass(frozen=True)
class Writer:
    """`write(folder, version)` of version 1 or 2; `read(folder)`: the version, or NOTHING."""

    write: Callable[[Path, int], None]
    read: Callable[[Path], object]
    others: frozenset[object] = frozenset()  # what may be read, too, after a failure


def _write_plain(folder: Path, version: int) -> None:
    write_file(folder / "file", [bytes([version]) * 1000, b"", b"end"])


def _read_plain(folder: Path) -> object:
    if not (folder / "file").exists():
        return NOTHING
    content = (folder / "file").read_bytes()
    assert content == content[:1] * 1000 + b"end"
    return content[0]


_LAYOUT = KvLayout(KvType.F16, (KvGroup(0, 96), KvGroup(40, 32)), ())


def _saved(version: int) -> SavedText:
    header = Header(
        model="model",
        kv_type=KvType.F16.value,
        block_tokens=BLOCK_TOKENS,
        windows=[0, 40],
        block_bytes=[96, 32],
        first=[0, 1],
        tokens=3 * BLOCK_TOKENS,
        prompted=version,
        runs=3,
    )
    blocks = [np.full((3, 96), version, np.uint8), np.full((2, 32), version, np.uint8)]
    return SavedText(header, np.arange(3 * BLOCK_TOKENS, dtype=np.int32), blocks)


def _read_saved(folder: Path) -> object:
    if not (folder / "slot").exists():
        return NOTHING
    return read_saved(folder / "slot", _LAYOUT, "model", most_tokens=1000).header.prompted


_LLM = cast("Any", SimpleNamespace(defaults=SamplingParams()))  # all that saving needs


def _write_chat(folder: Path, version: int) -> None:
    session = ChatSession(_LLM, f"version {version}")
    session._past = [Exchange("question", "answer " * 100)] * version
    session.save(folder / "chat.json")


def _read_chat(folder: Path) -> object:
    if not (folder / "chat.json").exists():
        return NOTHING
    session = ChatSession.load(_LLM, folder / "chat.json")
    assert session.system == f"version {len(session.exchanges)}"
    return len(session.exchanges)


def _write_model(folder: Path, version: int, **limits: int) -> None:
    writer = GgufWriter(folder / "model.gguf", **limits)
    writer.add("version", version)
    for number in range(3):
        writer.add_tensor(f"t{number}", np.full(64, version, np.float32))
    writer.write()


def _read_model(path: Path) -> object:
    if not path.exists():
        return NOTHING
    with GgufLoader(path) as loader:
        version = int(loader.metadata.integer("version"))
        for tensor in loader.tensors.values():
            assert set(tensor.data.view(np.float32).tolist()) == {version}
        return version


def _write_copy(folder: Path, version: int) -> None:
    """A model whose tensor is a part of another file."""
    writer = GgufWriter(folder / "model.gguf")
    writer.add("version", version)
    with TemporaryFile() as source:
        source.write(b"else" + np.full(64, version, np.float32).tobytes())
        source.flush()
        part = FileRange(source.fileno(), 4, 256)
        writer.add_streamed_tensor("t", GgmlType.F32, (64,), lambda: [part])
        writer.write()


def _write_split(folder: Path, version: int) -> None:
    _write_model(folder, version, max_tensors=1)


def _read_split(folder: Path) -> object:
    if not (folder / "model-00001-of-00003.gguf").exists():
        return TORN_SET if any(folder.glob("model-*")) else NOTHING
    return _read_model(folder / "model-00001-of-00003.gguf")


def _write_history(folder: Path, version: int) -> None:
    """A chat of one line, which says how many lines there were before it."""
    path = folder / "history"
    before = len(path.read_text().splitlines()) if path.exists() else 0
    lines: list[str] = []
    readline = SimpleNamespace(
        add_history=lines.append,
        get_current_history_length=lambda: len(lines),
        get_history_item=lambda number: lines[number - 1],
    )
    history = reading._History(path, cast("Any", readline))
    lines.append(f"{version} after {before}")
    history.save()


def _read_history(folder: Path) -> object:
    if not (folder / "history").exists():
        return NOTHING
    *before, last = (folder / "history").read_text().splitlines()
    version, count = last.split(" after ")
    assert len(before) == int(count), "lines of others were lost"
    return int(version)


WRITERS = {
    "a file": Writer(_write_plain, _read_plain),
    "a saved cache": Writer(
        lambda folder, version: _saved(version).write(folder / "slot"), _read_saved
    ),
    "a conversation": Writer(_write_chat, _read_chat),
    "a model": Writer(_write_model, lambda folder: _read_model(folder / "model.gguf")),
    "a copied model": Writer(_write_copy, lambda folder: _read_model(folder / "model.gguf")),
    "a split model": Writer(_write_split, _read_split, others=frozenset({TORN_SET})),
    "the history of chats": Writer(_write_history, _read_history),
}
