"""`ingot batch`: files of requests, answered into a folder; killed, and continued."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from serving import PATIENCE, serving
from typer.testing import CliRunner

from ingot.cli import app
from ingot.errors import ConfigError, EngineError
from ingot.server.batches.journal import Journal
from ingot.server.batches.offline import OfflineBatch
from ingot.server.batches.requests import Answer, BatchRequest
from ingot.server.batches.row_files import RowFile
from scripted_gguf import write_scripted_gguf

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scripts = {"one": "First.", "two": "Second.", "long": "word " * 40}
    return write_scripted_gguf(tmp_path_factory.mktemp("offline") / "model.gguf", scripts)


def line(custom_id: str, content: str, **fields: object) -> dict[str, Any]:
    body = {"model": "any", "messages": [{"role": "user", "content": content}], **fields}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


def write(path: Path, lines: list[Any]) -> Path:
    texts = (each if isinstance(each, str) else json.dumps(each) for each in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def batch(*arguments: object) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["batch", *map(str, arguments), "--threads", "1"])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.exit_code, ran.stderr


def results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()]


def said(result: dict[str, Any]) -> Any:
    return ChatCompletion.model_validate(result["response"]["body"]).choices[0].message.content


def test_a_file_is_answered_into_a_folder(model: Path, tmp_path: Path) -> None:
    score = {"text_1": "one", "text_2": ["one", "two"]}
    bad = line("dear", "one", temperature=-1)
    lines = [
        line("a", "one"),
        line("b", "two"),
        {**line("c", ""), "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 2}},
        {**line("d", ""), "url": "/v1/embeddings", "body": {"input": "text", "model": "m"}},
        {**line("e", ""), "url": "/v1/score", "body": score},
        "",
        bad,
        line("f", "\u00e9t\u00e9"),
    ]
    source = write(tmp_path / "in.jsonl", lines)
    status, told = batch("-m", model, source, tmp_path / "out")
    assert (status, told.count("\n")) == (0, 1)
    assert "7 requests: 6 answered, 1 failed" in told
    found = results(tmp_path / "out/output.jsonl")
    assert [each["custom_id"] for each in found] == ["a", "b", "c", "d", "e", "f"]
    assert [said(found[0]), said(found[1]), said(found[5])] == ["First.", "Second.", "Hello!"]
    assert found[2]["response"]["body"]["usage"]["completion_tokens"] <= 2
    CreateEmbeddingResponse.model_validate(found[3]["response"]["body"])
    same, other = (each["score"] for each in found[4]["response"]["body"]["data"])
    assert same > other
    (failed,) = results(tmp_path / "out/errors.jsonl")
    assert (failed["custom_id"], failed["response"]["status_code"]) == ("dear", 400)
    assert {each.name for each in (tmp_path / "out").iterdir()} == {
        "output.jsonl",
        "errors.jsonl",
        "batch.json",
    }


def test_it_answers_as_a_server_does(model: Path, tmp_path: Path) -> None:
    lines = [line(str(number), text) for number, text in enumerate(["one", "two", "?"] * 20)]
    source = write(tmp_path / "in.jsonl", lines)
    batch("-m", model, source, tmp_path / "out")
    ours = [(each["custom_id"], said(each)) for each in results(tmp_path / "out/output.jsonl")]
    with serving(model, "--threads", 1) as served:
        client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0)
        uploaded = client.files.create(file=source, purpose="batch")
        made = client.batches.create(
            input_file_id=uploaded.id, endpoint=CHAT, completion_window="24h"
        )
        end = time.monotonic() + PATIENCE
        while (made := client.batches.retrieve(made.id)).status == "in_progress":
            assert time.monotonic() < end
            time.sleep(0.02)
        assert made.output_file_id is not None
        texts = client.files.content(made.output_file_id).text.splitlines()
    theirs = [(each["custom_id"], said(each)) for each in map(json.loads, texts)]
    assert ours == theirs
    assert len(ours) == 60


@pytest.mark.parametrize(
    ("wrong", "code", "custom_id"),
    [
        ("{", "invalid_line", None),
        ("[" * 200 + "]" * 200, "invalid_line", None),
        ({**line("x", "one"), "url": "/v1/moderations"}, "invalid_url", "x"),
        (line("a", "one"), "duplicate_custom_id", "a"),
        (line("x", "one", stream=True), "invalid_request", "x"),
    ],
)
def test_wrong_lines_go_to_the_errors(
    model: Path, tmp_path: Path, wrong: Any, code: str, custom_id: str | None
) -> None:
    source = write(tmp_path / "in.jsonl", [line("a", "one"), wrong, line("b", "two")])
    batch("-m", model, source, tmp_path / "out")
    (failed,) = results(tmp_path / "out/errors.jsonl")
    assert (failed["custom_id"], failed["error"]["code"]) == (custom_id, code)
    assert failed["error"]["line"] == 2
    assert [said(each) for each in results(tmp_path / "out/output.jsonl")] == ["First.", "Second."]


def test_all_lines_wrong(model: Path, tmp_path: Path) -> None:
    _, told = batch("-m", model, write(tmp_path / "in.jsonl", ["{", "}"]), tmp_path / "out")
    assert "2 requests: 0 answered, 2 failed" in told
    assert results(tmp_path / "out/output.jsonl") == []


def slow_command(source: Path, out: Path, model: Path) -> list[str]:
    """A run that can be caught in the middle."""
    code = "from ingot.cli import main; main()"
    given = ["batch", source, out, "-m", model, "--threads", 1, "--parallel", 2]
    return [sys.executable, "-c", code, *map(str, given)]


def test_a_killed_run_goes_on(model: Path, tmp_path: Path) -> None:
    count = 90
    lines = [line(str(number), "long") for number in range(count)]
    source, out = write(tmp_path / "in.jsonl", lines), tmp_path / "out"
    command = slow_command(source, out, model)
    journal = out / "answers.jsonl"
    answered: set[int] = set()
    for _ in range(2):
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        try:
            end = time.monotonic() + PATIENCE
            while _count(journal) < len(answered) + 20:
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.005)
        finally:
            process.kill()
            process.communicate()
        assert not (out / "output.jsonl").exists()
        with journal.open("ab") as file:
            file.write(b'[7, {"sta')  # what a kill in the middle of a write leaves
        before, answered = answered, set(Journal(journal).offsets())
        assert before < answered
    kept = {number: answer.request_id for number, answer in Journal(journal).answers()}
    done = subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found = results(out / "output.jsonl")
    assert [each["custom_id"] for each in found] == [str(number) for number in range(count)]
    for number, request_id in kept.items():  # numbers of lines begin with 1
        assert found[number - 1]["response"]["request_id"] == request_id
    assert {said(each) for each in found} == {"word " * 40}
    assert not journal.exists()
    before_again = (out / "output.jsonl").read_bytes()
    status, told = batch("-m", model, source, out)
    assert (status, f"{count} requests: {count} answered" in told) == (0, True)
    assert (out / "output.jsonl").read_bytes() == before_again


def _count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_ctrl_c_says_how_to_go_on(model: Path, tmp_path: Path) -> None:
    lines = [line(str(number), "long") for number in range(200)]
    source, out = write(tmp_path / "in.jsonl", lines), tmp_path / "out"
    command = slow_command(source, out, model)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + PATIENCE
    while not _count(out / "answers.jsonl"):
        assert time.monotonic() < end
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 130
    assert "the same command goes on" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("change", ["file", "model"])
def test_answers_of_other_runs_are_not_mixed(model: Path, tmp_path: Path, change: str) -> None:
    source, out = write(tmp_path / "in.jsonl", [line("a", "one")]), tmp_path / "out"
    batch("-m", model, source, out)
    if change == "file":
        write(source, [line("a", "two")])
    named = f"other={model}" if change == "model" else model
    status, told = batch("-m", named, source, out)
    assert (status, "has answers to another file, or of other models" in told) == (2, True)
    assert [said(each) for each in results(out / "output.jsonl")] == ["First."]


def test_files_of_others_are_not_overwritten(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/output.jsonl").write_text("precious")
    source = write(tmp_path / "in.jsonl", [line("a", "one")])
    status, told = batch("-m", model, source, tmp_path / "out")
    assert (status, "has a file output.jsonl already" in told) == (2, True)
    assert (tmp_path / "out/output.jsonl").read_text() == "precious"


def test_inputs_that_hold_nothing(model: Path, tmp_path: Path) -> None:
    for name, content, reason in (
        ("empty.jsonl", b"\n \n", "has no requests"),
        ("bad.parquet", b"PAR1 not", "is not a Parquet file"),
    ):
        if name.endswith("parquet"):
            pytest.importorskip("pyarrow", reason="pyarrow is not here: pip install pyarrow")
        (tmp_path / name).write_bytes(content)
        status, told = batch("-m", model, tmp_path / name, tmp_path / "out")
        assert (status, reason in told) == (2, True)
    status, told = batch("-m", model, tmp_path / "missing.jsonl", tmp_path / "out")
    assert (status, "No such file" in told) == (2, True)


def test_parquet(model: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not here: pip install pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [json.dumps(line(str(number), "one")["body"]) for number in range(3)]
    table = pyarrow.table({"custom_id": ["a", "b", "c"], "url": [CHAT] * 3, "body": texts})
    parquet.write_table(table, tmp_path / "texts.parquet")
    structs = [line("a", "two", max_tokens=100), line("b", "one"), line("c", "one", max_tokens=1)]
    parquet.write_table(pyarrow.Table.from_pylist(structs), tmp_path / "structs.parquet")
    batch("-m", model, tmp_path / "texts.parquet", tmp_path / "texts")
    batch("-m", model, tmp_path / "structs.parquet", tmp_path / "structs")
    assert [said(each) for each in results(tmp_path / "texts/output.jsonl")] == ["First."] * 3
    found = results(tmp_path / "structs/output.jsonl")
    assert [said(each) for each in found[:2]] == ["Second.", "First."]
    assert found[2]["response"]["body"]["usage"]["completion_tokens"] == 1


def test_without_pyarrow(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "in.parquet").write_bytes(b"x")
    status, told = batch("-m", model, tmp_path / "in.parquet", tmp_path / "out")
    assert (status, "ingot-llm[parquet]" in told) == (2, True)


class Slow:
    """Answers after a while, and counts how many wait."""

    def __init__(self) -> None:
        self.waiting = self.most = 0
        self.asked: list[str] = []

    async def ask(self, request: BatchRequest) -> Answer:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        self.asked.append(request.custom_id)
        await asyncio.sleep(0)
        self.waiting -= 1
        return Answer(429 if self.asked.count(request.custom_id) == 1 else 200, {})


def prepared(tmp_path: Path, count: int) -> OfflineBatch:
    lines = [line(str(number), "x") for number in range(count)]
    made = OfflineBatch(RowFile(write(tmp_path / "in.jsonl", lines)), tmp_path / "out", ["m"])
    assert made.begin() is None
    return made


def test_rows_wait_for_their_turn_and_a_full_queue_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    steps: list[tuple[int, int]] = []
    monkeypatch.setattr("ingot.server.batches.run.BUSY_SECONDS", 0)
    counts = asyncio.run(prepared(tmp_path, 50).run(slow.ask, 4, lambda *step: steps.append(step)))
    assert (counts.rows, counts.succeeded, slow.most) == (50, 50, 4)
    assert sorted(slow.asked) == sorted([str(number) for number in range(50)] * 2)
    assert steps == [(number, 50) for number in range(51)]


def test_a_broken_engine_ends_the_run_and_fails_no_row(tmp_path: Path) -> None:
    asked: list[str] = []

    async def ask(request: BatchRequest) -> Answer:
        asked.append(request.custom_id)
        if len(asked) > 3:
            raise EngineError("the engine has ended")
        return Answer(200, {})

    made = prepared(tmp_path, 10)
    with pytest.raises(EngineError):
        asyncio.run(made.run(ask, 1, lambda *_: None))
    assert len(Journal(tmp_path / "out/answers.jsonl").offsets()) == 3
    asked.clear()

    async def answer(request: BatchRequest) -> Answer:
        asked.append(request.custom_id)
        return Answer(200, {})

    assert asyncio.run(made.run(answer, 1, lambda *_: None)).succeeded == 10
    assert asked == [str(number) for number in range(3, 10)]


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    made, other = prepared(tmp_path, 2), prepared(tmp_path, 2)

    async def ask(_: BatchRequest) -> Answer:
        await other.run(ask, 1, lambda *_: None)
        return Answer(200, {})

    with pytest.raises(ConfigError, match="another process is answering"):
        asyncio.run(made.run(ask, 1, lambda *_: None))


def test_a_spoiled_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"nonsense\n")
    with pytest.raises(ConfigError, match="holds no answers"):
        Journal(path).offsets()
