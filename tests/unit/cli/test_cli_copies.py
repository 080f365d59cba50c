"""The memory that copies of weights take: commands say it on opening, `ingot inspect` before."""

import json
import re
from pathlib import Path

import pytest
from command_runs import Run

from ingot import LLM, _native
from ingot.cli.shared import open_model
from ingot.cli.shared.output import size
from ingot.engine import EngineOptions
from ingot.gguf import GgmlType
from ingot.server.open_model import open_model as open_served
from ingot.server.options import ServedModel
from tiny_llama import write_tiny_llama

pytestmark = pytest.mark.skipif(
    _native.interleaved_rows(int(GgmlType.Q8_0), _native.CODES["Precision"].FAST) == 0,
    reason="this CPU has no interleaved copies",
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


@pytest.fixture
def remark(model: Path) -> str:
    with LLM(model) as llm:
        return llm.engine.model.copies.remark


@pytest.mark.parametrize(
    "command",
    [("run", "-n", 1, "-m", "MODEL", "hi"), ("bench", "-p", 4, "-n", 1, "-r", 1, "-m", "MODEL")],
    ids=lambda command: command[0],
)
def test_commands_say_it_on_opening(
    run: Run, model: Path, remark: str, monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...]
) -> None:
    arguments = [model if part == "MODEL" else part for part in command]
    assert remark not in run(*arguments).err  # nobody notices so little
    monkeypatch.setattr(open_model, "_WORTH_SAYING", 1)
    assert run(*arguments).err.startswith(f"{remark}\n")
    assert remark not in run(*arguments, "--weights", "map").err


@pytest.mark.parametrize("engine_process", [False, True])
def test_the_server_logs_it(model: Path, remark: str, engine_process: bool) -> None:
    served = ServedModel(
        name="tiny", path=model, engine=EngineOptions(engine_process=engine_process)
    )
    said: list[str] = []
    open_served(served, None, said.append, lambda _: None).close()
    assert said == [f"tiny: {remark}"]


def test_inspect_has_it_beside_the_total(run: Run, model: Path, remark: str) -> None:
    found = json.loads(run("inspect", "--json", model).out)
    with LLM(model) as llm:
        copies = llm.engine.model.copies
    assert found["copies"] == {"bytes": copies.size, "replace": copies.replace}
    said = run("inspect", model).out
    assert re.search(rf"^copies +{size(copies.size)}  of weights", said, re.M)
    assert ("given back" in said) == copies.replace == ("given back" in remark)
