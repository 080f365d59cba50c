"""Saved slots: how much may be saved, what the folder may contain, and invalid files."""

import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from ingot.server import ServedModel, ServerOptions
from ingot.server.app import create_app
from tiny_llama import write_tiny_llama

PROMPT = list(range(70))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("slots") / "tiny.gguf")


@contextmanager
def serving(model: Path, folder: Path, **options: Any) -> Iterator[httpx.Client]:
    """A client of a server whose slot 0 has had a text."""
    engine = EngineOptions(threads=1, max_running=2)
    served = ServedModel(name="tiny", path=model, engine=engine)
    app = create_app(ServerOptions(models=(served,), slots_folder=folder, **options))
    with TestClient(app, base_url="http://localhost") as http:
        write(http, PROMPT)
        yield http


def write(http: httpx.Client, prompt: list[int]) -> None:
    body = {"prompt": prompt, "n_predict": 1, "id_slot": 0, "ignore_eos": True}
    assert http.post("/completion", json=body).status_code == 200


def act(http: httpx.Client, action: str, name: str) -> tuple[int, Any]:
    answer = http.post(f"/slots/0?action={action}", json={"filename": name})
    return answer.status_code, answer.json()


def refused(http: httpx.Client, action: str, name: str, status: int = 400) -> str:
    found, body = act(http, action, name)
    assert found == status, body
    message: str = body["error"]["message"]
    return message


def test_no_more_files_are_saved_than_the_server_keeps(tiny: Path, tmp_path: Path) -> None:
    with serving(tiny, tmp_path, slot_save_files=2) as http:
        assert act(http, "save", "a")[0] == act(http, "save", "b")[0] == 200
        message = refused(http, "save", "c", 413)
        assert message.startswith("2 slots are saved, and --slot-save-files allows 2")
        assert act(http, "save", "b")[0] == 200
        (tmp_path / "a").unlink()
        assert act(http, "save", "c")[0] == 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "c"]


def test_no_more_bytes_are_saved_than_the_limit(tiny: Path, tmp_path: Path) -> None:
    with serving(tiny, tmp_path) as http:
        size = act(http, "save", "a")[1]["n_written"]
    (tmp_path / "a").unlink()
    with serving(tiny, tmp_path, slot_save_limit=size * 5 // 2) as http:
        assert act(http, "save", "a")[0] == act(http, "save", "b")[0] == 200
        message = refused(http, "save", "c", 413)
        assert f"would have {size} bytes, and {size * 5 // 2 - 2 * size} are allowed" in message
        assert "--slot-save-limit" in message
        assert act(http, "save", "b")[0] == 200  # in the place of the old one
        write(http, [*PROMPT, *PROMPT, *PROMPT])
        before = (tmp_path / "b").read_bytes()
        refused(http, "save", "b", 413)
        assert (tmp_path / "b").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_limits_are_numbers_greater_than_zero(tiny: Path, tmp_path: Path) -> None:
    for name in ("slot_save_limit", "slot_save_files"):
        with pytest.raises(ConfigError, match=f"{name} is 0"):
            ServerOptions(
                models=(ServedModel(name="x", path=tiny),), slots_folder=tmp_path, **{name: 0}
            )


def test_what_is_no_file_is_neither_written_nor_read(tiny: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/zero")
    with serving(tiny, tmp_path) as http:
        for name in ("pipe", "folder", "link"):
            for action in ("save", "restore"):
                assert repr(name) in refused(http, action, name)
    assert (tmp_path / "link").is_symlink()


def test_a_disk_that_is_full_is_said(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/dev/full` cannot be a slot: the file that is written is made to be it."""
    opened = os.open

    def full(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if os.path.basename(path).startswith(".ingot-draft-"):  # noqa: PTH119
            path, flags = "/dev/full", os.O_WRONLY
        return opened(path, flags, mode, **options)

    with serving(tiny, tmp_path) as http:
        monkeypatch.setattr(os, "open", full)
        message = refused(http, "save", "a", 507)
        assert message == "a cannot be written: No space left on device"
        monkeypatch.undo()
        assert act(http, "save", "a")[0] == 200
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_server_sweeps_up_after_one_that_was_killed(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / f".ingot-draft-{os.getpid()}-{'0' * 16}").write_bytes(b"half of a slot")
    with serving(tiny, tmp_path):
        assert list(tmp_path.iterdir()) == []


def with_header(content: bytes, header: bytes, body: bytes = b"") -> bytes:
    """A saved file with another header, and the right digest."""
    made = content[:12] + struct.pack("<I", len(header)) + header + body
    return made + blake2b(made, digest_size=32).digest()


def test_headers_of_strangers_are_errors_of_the_request(tiny: Path, tmp_path: Path) -> None:
    with serving(tiny, tmp_path) as http:
        assert act(http, "save", "good")[0] == 200
        content = (tmp_path / "good").read_bytes()
        (length,) = struct.unpack_from("<I", content, 12)
        fields = json.loads(content[16 : 16 + length])
        body = content[16 + length : -32]
        for header in (
            b"[" * 60_000,
            b'{"a":' * 10_000,
            b" " * (1 << 20),
            json.dumps({**fields, "tokens": 10**400}).encode(),
            json.dumps({**fields, "tokens": 1 << 50}).encode(),
            json.dumps({**fields, "runs": float("nan")}).encode(),
            json.dumps({**fields, "kv_type": [[[]]]}).encode(),
            json.dumps({**fields, "first": [fields["runs"]]}).encode(),
            b'{"tokens":' + b"9" * 5000 + b"}",
            b"\xff\xfe",
        ):
            (tmp_path / "bad").write_bytes(with_header(content, header, body))
            message = refused(http, "restore", "bad")
            assert message.startswith("bad ")
            assert str(tmp_path) not in message
        (tmp_path / "bad").write_bytes(with_header(content, json.dumps(fields).encode(), body))
        assert act(http, "restore", "bad")[0] == 200
