"""Several servers with one folder of batches: one of them uses it, and another takes it over."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from ingot.server import ServedModel, ServerOptions, batches_folder
from ingot.server.app import application
from ingot.server.batches.openai_batches import Batch
from ingot.server.batches.records import BatchRecords
from ingot.server.batches.requests import BatchRequest
from ingot.server.batches_folder import BatchesFolder
from ingot.server.state import Server
from scripted_gguf import write_scripted_gguf

ROWS = 20
CHAT = "/v1/chat/completions"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_scripted_gguf(tmp_path / "model.gguf", {"one": "First."})


def begun(folder: Path) -> None:
    """Leave a batch as a server leaves it that is killed before its first answer."""
    batch = Batch(
        id="batch_1",
        endpoint=CHAT,
        input_file_id="file-1",
        completion_window="24h",
        status="in_progress",
        created_at=1,
        expires_at=2,
    )
    body = {"model": "m", "messages": [{"role": "user", "content": "one"}]}
    requests = [BatchRequest(str(number), CHAT, body) for number in range(ROWS)]
    records = BatchRecords(folder / "batches")
    assert list(records.load()) == []
    records.create(batch.id, batch.model_dump(), requests)


@asynccontextmanager
async def served(model: Path, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with the folder."""
    engine = EngineOptions(threads=1, context=256)
    served_model = ServedModel(name="m", path=model, engine=engine)
    app = application(Server(ServerOptions(models=(served_model,), batches_folder=folder)))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


async def ended(client: httpx.AsyncClient) -> dict[str, Any]:
    """The batch when it has ended."""
    async with asyncio.timeout(60):
        while True:
            batch: dict[str, Any] = (await client.get("/v1/batches/batch_1")).json()
            if batch["status"] != "in_progress":
                return batch
            await asyncio.sleep(0.01)


def test_one_of_two_servers_resumes_a_batch(model: Path, tmp_path: Path) -> None:
    begun(tmp_path / "kept")

    async def both() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(served(model, tmp_path / "kept"))
            second = await stack.enter_async_context(served(model, tmp_path / "kept"))
            batch = await ended(first)
            assert batch["request_counts"] == {"total": ROWS, "completed": ROWS, "failed": 0}
            for path in ("/v1/batches/batch_1", "/v1/files", "/v1/messages/batches"):
                refused = await second.get(path)
                assert refused.status_code == 503
                assert "another server uses the folder" in refused.json()["error"]["message"]
                assert int(refused.headers["retry-after"]) > 0
            assert (await second.get("/v1/models")).status_code == 200
        kept = tmp_path / "kept/batches/batch_1.answers.jsonl"
        numbers = [json.loads(line)[0] for line in kept.read_text().splitlines()]
        assert sorted(numbers) == list(range(ROWS))

    asyncio.run(both())


def test_a_server_takes_over_what_another_one_left(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()

    async def both() -> None:
        async with AsyncExitStack() as later:
            async with served(model, folder) as first:
                second = await later.enter_async_context(served(model, folder))
                files = {"file": ("in.jsonl", b"{}\n")}
                made = await first.post("/v1/files", files=files, data={"purpose": "batch"})
            begun(folder)  # what the first one had not done
            batch = await ended(second)
            assert batch["request_counts"]["completed"] == ROWS
            found = await second.get(f"/v1/files/{made.json()['id']}/content")
            assert found.content == b"{}\n"
            output = await second.get(f"/v1/files/{batch['output_file_id']}/content")
            assert len(output.text.splitlines()) == ROWS

    asyncio.run(both())


def test_a_folder_that_cannot_be_locked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_: int, *, wait: bool) -> bool:
        raise OSError(37, "No locks available", f"{wait}")

    monkeypatch.setattr(batches_folder, "lock_file", no_locks)
    with pytest.raises(ConfigError, match=r"cannot be locked.*No locks available"):
        BatchesFolder(tmp_path).claim()


def test_without_a_folder_there_is_nothing_to_claim() -> None:
    folder = BatchesFolder(None)
    assert folder.claim()
    folder.require(lambda *_: None)  # type: ignore[arg-type,return-value]
    assert not folder.is_claimed
    folder.release()
