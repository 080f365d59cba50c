"""Batches on a real Ray cluster: the same answers as without it, also if workers are killed."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ray_servers import CHAT, chat, kill_worker

from ingot.engine import EngineOptions
from ingot.server import ServedModel, ServerOptions
from ingot.server.batches.offline import Asking, OfflineBatch, asking
from ingot.server.batches.row_files import RowFile

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # Ray's own

ROWS, KILLS = 240, 2


def lines(count: int) -> list[dict[str, Any]]:
    bodies = [chat(["one", "two", f"{number} ?"][number % 3]) for number in range(count)]
    bodies[7]["temperature"] = -1
    return [
        {"custom_id": str(number), "method": "POST", "url": CHAT, "body": body}
        for number, body in enumerate(bodies)
    ]


def answered(source: Path, folder: Path, server: Asking, kill_after: list[int]) -> list[Any]:
    """The lines of both files without what differs by chance; kills a worker now and then."""
    batch = OfflineBatch(RowFile(source), folder, ["m"])
    assert batch.begin() is None

    def progress(done: int, _: int) -> None:
        if kill_after and done >= kill_after[0]:
            kill_after.pop(0)
            kill_worker("Worker")

    async def run() -> None:
        async with server as (ask, at_once):
            await batch.run(ask, min(at_once, 16), progress)

    asyncio.run(run())
    assert not kill_after
    return written(folder)


def written(folder: Path) -> list[Any]:
    """The lines of both files without what differs by chance."""
    return [
        _plain(json.loads(line))
        for name in ("output.jsonl", "errors.jsonl")
        for line in (folder / name).read_text().splitlines()
    ]


def _plain(line: dict[str, Any]) -> Any:
    body = line["response"]["body"]
    said = [each["message"]["content"] for each in body["choices"]] if "choices" in body else body
    return line["custom_id"], line["response"]["status_code"], said


def options(model: Path) -> ServerOptions:
    engine = EngineOptions(threads=1, context=4096)
    return ServerOptions(
        models=(ServedModel(name="m", path=model, engine=engine),), access_log=False
    )


def test_every_row_has_one_answer_after_workers_were_killed(
    cluster: Any, model: Path, tmp_path: Path
) -> None:
    from ingot.ray import Scale  # noqa: PLC0415
    from ingot.ray.pool import asking_workers  # noqa: PLC0415

    assert cluster is not None
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in lines(ROWS)))
    workers = asking_workers(options(model), Scale(replicas=2, cpus=0.5), {}, None)
    kills = [ROWS // (KILLS + 1) * number for number in range(1, KILLS + 1)]
    on_ray = answered(source, tmp_path / "ray", workers, kills)
    alone = answered(source, tmp_path / "alone", asking(options(model)), [])
    assert len(on_ray) == ROWS
    assert on_ray == alone


def test_the_command_line(cluster: Any, model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in lines(20)))
    batch = ["-c", "from ingot.cli import main; main()", "batch", str(source)]
    flags = ["-m", f"m={model}", "--threads", "1", "--context", "4096"]
    on_ray = ["--ray-address", cluster.address, "--replicas", "2", "--replica-cpus", "0.5"]
    outputs = []
    for name, more in (("ray", on_ray), ("alone", [])):
        folder = tmp_path / name
        command = [sys.executable, *batch, str(folder), *flags, *more]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert "20 requests: 19 answered, 1 failed (errors.jsonl)" in ran.stderr
        found = [json.loads(line) for line in (folder / "output.jsonl").read_text().splitlines()]
        outputs.append([_plain(line) for line in found])
    assert outputs[0] == outputs[1]
