"""The errors that clients get when memory or threads run out."""

import asyncio
from pathlib import Path

import pytest

from ingot.server.errors import ApiError, error_info
from ingot.server.options import ServedModel, ServerOptions
from ingot.server.slot_files import SlotFiles


def test_too_little_memory_is_a_503_that_says_so() -> None:
    info = error_info(MemoryError())
    assert (info.status, info.code, info.retry) == (503, "out_of_memory", True)
    assert "memory" in info.message


def test_a_folder_of_slots_that_cannot_be_read_is_a_507(tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    model = ServedModel(name="any", path=tmp_path / "any.gguf")
    files = SlotFiles(ServerOptions(models=(model,), slots_folder=folder))
    folder.rmdir()

    async def save() -> None:
        async with files.room_for(files.path("one")):
            pass

    with pytest.raises(ApiError) as caught:
        asyncio.run(save())
    assert caught.value.info.status == 507
    assert str(folder) not in caught.value.info.message
