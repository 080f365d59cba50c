"""Datasets of Ray Data on a real cluster: order, schemas, bad rows, and workers that are killed."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ray_servers import CHAT, WORDS, kill_worker, until

from ingot.errors import ConfigError

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # Ray's own

ENGINE = {"threads": 1, "context": 4096}
LONG = "word " * WORDS


def answered(rows: Any, model: Path, prompt: Any, **options: Any) -> Any:
    from ingot.ray import batch_inference  # noqa: PLC0415

    given = {"engine": ENGINE, "batch_size": 4, **options}
    return batch_inference(rows, model=str(model), prompt=prompt, **given)


def test_rows_keep_their_order(cluster: Any, model: Path) -> None:
    import ray.data  # noqa: PLC0415

    from ingot.ray import Scale  # noqa: PLC0415

    assert cluster is not None
    rows = ray.data.range(40, override_num_blocks=10)
    found = answered(
        rows,
        model,
        lambda row: "long" if row["id"] < 4 else "one",  # the first block ends last
        scale=Scale(replicas=2, cpus=0.5),
    )
    wanted = [(number, LONG if number < 4 else "First.") for number in range(40)]
    assert [(row["id"], row["answer"]) for row in found.take_all()] == wanted
    # Other pipelines of the user run as before.
    contexts = (ray.data.DataContext.get_current(), rows.context)
    assert [each.execution_options.preserve_order for each in contexts] == [False, False]


def test_a_row_that_fails_does_not_end_the_others(cluster: Any, model: Path) -> None:
    import ray.data  # noqa: PLC0415

    from ingot.ray import Scale  # noqa: PLC0415

    assert cluster is not None
    rows = [{"number": number, "word": ["one", "two"][number % 2]} for number in range(20)]
    found = answered(
        ray.data.from_items(rows),
        model,
        lambda row: row["word"] if row["number"] != 3 else row["missing"],
        scale=Scale(cpus=0.5),
    ).take_all()
    assert [row["number"] for row in found] == list(range(20))
    bad = found.pop(3)
    assert bad["answer"] is None
    assert "missing" in bad["error"]
    assert {(row["word"], row["answer"], row["error"]) for row in found} == {
        ("one", "First.", None),
        ("two", "Second.", None),
    }


def test_every_row_has_one_answer_after_a_worker_was_killed(
    cluster: Any, model: Path, tmp_path: Path
) -> None:
    import ray.data  # noqa: PLC0415

    from ingot.ray import Scale  # noqa: PLC0415

    assert cluster is not None

    def prompt(row: Any) -> str:
        number = row["id"]
        (tmp_path / str(number)).touch()
        return "long" if number % 4 == 0 else "one"

    found = answered(
        ray.data.range(64, override_num_blocks=16),
        model,
        prompt,
        scale=Scale(replicas=2, cpus=0.5),
    )
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(found.take_all)
        until(lambda: len(list(tmp_path.iterdir())) >= 16)
        kill_worker("MapWorker")
        rows = running.result()
    assert [row["id"] for row in rows] == list(range(64))
    assert all(row["answer"] == ("First.", LONG)[row["id"] % 4 == 0] for row in rows)
    assert {row["error"] for row in rows} == {None}


def test_checkpoints_of_ray_data_skip_rows_that_were_written(
    cluster: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet  # noqa: PLC0415
    import ray.data  # noqa: PLC0415
    from ray.data.checkpoint import CheckpointConfig  # noqa: PLC0415

    from ingot.ray import Scale  # noqa: PLC0415

    assert cluster is not None
    asked = tmp_path / "asked"
    asked.mkdir()

    def prompt(row: Any) -> str:
        (asked / str(row["id"])).touch()
        return "one"

    def run(rows: int) -> set[int]:
        """The rows that were asked."""
        source = tmp_path / f"{rows}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"id": list(range(rows))}), source)
        read = ray.data.read_parquet(str(source))
        answered(read, model, prompt, scale=Scale(cpus=0.5)).write_parquet(str(tmp_path / "out"))
        found = {int(path.name) for path in asked.iterdir()}
        for path in asked.iterdir():
            path.unlink()
        return found

    # Kept although the first run ends well: it stands for one that was killed after eight rows.
    kept = CheckpointConfig("id", str(tmp_path / "done"), delete_checkpoint_on_success=False)
    monkeypatch.setattr(ray.data.DataContext.get_current(), "checkpoint_config", kept)
    assert run(8) == set(range(8))
    assert run(20) == set(range(8, 20))
    monkeypatch.undo()
    found = ray.data.read_parquet(str(tmp_path / "out")).take_all()
    assert sorted(row["id"] for row in found) == list(range(20))
    assert {row["answer"] for row in found} == {"First."}


def test_options_for_servers_are_refused(cluster: Any, model: Path) -> None:
    import ray.data  # noqa: PLC0415

    from ingot.ray import Scale  # noqa: PLC0415

    assert cluster is not None
    with pytest.raises(ConfigError, match="target_tokens is for servers"):
        answered(ray.data.range(1), model, "one", scale=Scale(target_tokens=5))


def worked(model: Path, path: str, prompt: Any, **options: Any) -> list[Any]:
    """The answers to two rows, of a worker in this process."""
    import numpy as np  # noqa: PLC0415

    from ingot.ray import Inference  # noqa: PLC0415

    worker = Inference(model=str(model), prompt=prompt, path=path, engine=ENGINE, **options)
    with closing(worker):
        found = worker({"word": np.array(["one", "two"], dtype=object)})
    assert list(found["error"]) == [None, None]
    return list(found["answer"])


def test_answers_follow_a_schema(smollm2_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"yes": {"type": "boolean"}},
        "required": ["yes"],
        "additionalProperties": False,
    }
    params = {"temperature": 0, "max_tokens": 40}
    for answer in worked(smollm2_path, CHAT, "{word}", schema=schema, params=params):
        assert set(json.loads(answer)) == {"yes"}
        assert json.loads(answer)["yes"] in (True, False)
    schema = {"enum": ["a", "b"]}
    answers = worked(smollm2_path, CHAT, "{word}", schema=schema, params=params)
    assert set(answers) <= {'"a"', '"b"'}


def test_other_endpoints(model: Path) -> None:
    from ingot.ray import Inference  # noqa: PLC0415

    messages = worked(model, CHAT, lambda row: [{"role": "user", "content": row["word"]}])
    assert messages == ["First.", "Second."]
    params = {"max_tokens": 3, "ignore_eos": True}
    texts = worked(model, "/v1/completions", "{word}", params=params)
    assert all(isinstance(text, str) and text for text in texts)
    vectors = worked(model, "/v1/embeddings", "{word}")
    assert len(vectors[0]) == len(vectors[1]) > 1
    same, other = worked(model, "/v1/score", lambda row: (row["word"], "one"))
    assert abs(same - 1) < 1e-4
    assert other < 0.999
    with pytest.raises(ConfigError, match="must be one of"):
        Inference(model=str(model), prompt="", path="/v1/files")


def test_a_pinned_worker_keeps_to_its_cores(model: Path) -> None:
    import os  # noqa: PLC0415

    from ingot.ray import Inference, Scale  # noqa: PLC0415

    before = os.sched_getaffinity(0)
    scale = Scale(cpus=1, pin=True)
    worker = Inference(model=str(model), prompt="one", engine=ENGINE, scale=scale)
    try:
        assert os.sched_getaffinity(0) == worker._cores.cores
        assert len(worker._cores.cores) == 1
    finally:
        worker.close()
        os.sched_setaffinity(0, before)
    assert os.sched_getaffinity(0) == before
