"""Layers that guess on the GPU: multi-token prediction and EAGLE-3 drafts beside their model.

In the interpreter a layer or two, beside the same on the CPU; on a device whole texts, which no
guess may change.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpu.test_gpu_models import INTERPRETED, assert_near
from ingot import LLM
from ingot.backends.batch import ExecutionPhase
from ingot.engine.model.draft_head import DraftHead
from ingot.engine.model.eagle_head import EagleHead
from ingot.engine.model.gpu_head import GpuHeadProgram
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.model.mtp_head import MtpHead
from ingot.engine.speculation import AutoSpeculation, open_eagle
from ingot.errors import ConfigError
from models.test_mtp import with_mtp
from tiny_eagle import TinyEagle, write_target
from unit.engine.test_eagle_drafts import knowing_draft, silent_target

on_a_device = pytest.mark.skipif(INTERPRETED, reason="the interpreter takes seconds for a token")
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
HOT: dict[str, Any] = {
    "temperature": 2.0, "top_k": 40, "top_p": 1.0, "min_p": 0.0, "seed": 4, "ignore_eos": True,
}  # fmt: skip
IDS = (np.arange(9) * 7 % 61).astype(np.int32)
EAGLES = {"usual": TinyEagle(), "target's": TinyEagle(output=False, tokens=None, target_norm=True)}


def hidden_of(model: LoadedModel, ids: Any) -> Any:
    """Run tokens as a prompt; what the model keeps of them."""
    sequence = model.sequence()
    model.step([sequence], [ids], np.array([len(ids) - 1], np.int32), ExecutionPhase.PROMPT)
    sequence.close()
    return model.last_hidden(len(ids))


def said_by(head: DraftHead, ids: Any, hidden: Any) -> tuple[list[NDArray[np.float32]], list[int]]:
    """Logits after tokens that are read in parts, the next by its own hidden state; a guess."""
    cached, rows = head.open(ids[1:2]), []
    head.read(cached.blocks, ids[1:3], hidden[:2])
    said = head.next_token(cached.blocks, ids[3:6], hidden[2:5])
    rows.append(_copy(said.logits))
    said = head.next_token(cached.blocks, ids[6:7], said.hidden)
    rows.append(_copy(said.logits))
    cached.blocks.shrink(5)
    guess = head.guess(cached.blocks, ids[6:8], hidden[5:7], 4)
    assert cached.blocks.length == 10
    head.cache.close(cached)
    return rows, guess


def test_multi_token_prediction(tmp_path: Path) -> None:
    """The layer reads and says the same as on the CPU, up to rounding."""
    path = with_mtp("glm4moe", first=1).write(tmp_path / "model.gguf")
    with LoadedModel(path, threads=1, context=32, mtp=True) as model:
        expected = hidden_of(model, IDS)
        logits, guess = said_by(MtpHead(model), IDS, expected)
    with LoadedModel(path, context=32, mtp=True, device="cuda", sequences=1) as model:
        hidden = hidden_of(model, IDS)
        assert isinstance(hidden, torch.Tensor)
        assert_near(hidden.cpu().numpy(), expected)
        head = MtpHead(model)
        assert isinstance(head._program, GpuHeadProgram)
        assert head._program._backend.weights is model.gpu_program.weights
        found, guessed = said_by(head, IDS, torch.from_numpy(expected).to(hidden.device))
        for one, other in zip(found, logits, strict=True):
            assert_near(one, other)
        assert guessed == guess
        assert head._program._backend.prepared.compilations_after_ready == 0


@pytest.mark.parametrize("kind", ["target's"] if INTERPRETED else EAGLES)
def test_eagle(kind: str, tmp_path: Path) -> None:
    target = write_target(tmp_path / "target.gguf")
    file = EAGLES[kind].write(tmp_path / "draft.gguf")
    found = []
    for options in ({"threads": 1}, {"device": "cuda", "sequences": 1}):
        draft = open_eagle(file, None)
        assert draft is not None
        layers = draft.spec.target_layers
        with LoadedModel(target, context=32, hidden_layers=layers, **options) as model:
            head = EagleHead(model, draft)
            hidden_of(model, IDS)
            fused = head.hidden_states(len(IDS))
            assert isinstance(fused, torch.Tensor) == ("device" in options)
            if not found:
                states = fused
            found.append((_copy(fused), *said_by(head, IDS, _on(fused, states))))
            head.close()
    (rows, logits, guess), (fused, said, guessed) = found
    assert_near(fused, rows)
    for one, other in zip(said, logits, strict=True):
        assert_near(one, other)
    assert guessed == guess
    assert all(token in range(258) for token in guess)


def _copy(rows: Any) -> NDArray[np.float32]:
    return rows.cpu().numpy().copy() if isinstance(rows, torch.Tensor) else rows.copy()


def _on(like: Any, rows: Any) -> Any:
    """The same rows where others are."""
    return torch.from_numpy(rows).to(like.device) if isinstance(like, torch.Tensor) else rows


def test_a_text_with_guesses(tmp_path: Path) -> None:
    """Of a draft that knows what its target says, in another vocabulary: all are right."""
    target = silent_target(tmp_path / "target.gguf")
    draft = knowing_draft(tmp_path / "draft.gguf", target)
    with LLM(target, threads=1, context=32) as cpu:
        expected = cpu.generate([1, 2, 3], max_tokens=6, **GREEDY).token_ids
    with LLM(target, context=32, device="cuda", draft=draft, max_running=1) as llm:
        assert llm.generate([1, 2, 3], max_tokens=6, **GREEDY).token_ids == expected
        assert llm.stats.guessed_tokens == llm.stats.accepted_tokens > 0


def test_layers_on_two_devices_have_no_such_guesses(tmp_path: Path) -> None:
    path = with_mtp("qwen35").write(tmp_path / "model.gguf")
    options: dict[str, Any] = {"context": 32, "device": "cuda", "gpu_layers": 1, "max_running": 1}
    with pytest.raises(ConfigError, match="need all layers on one device"):
        LLM(path, speculation="mtp", **options)
    with LLM(path, speculation="auto", **options) as llm:
        assert not llm.engine.model.keeps_hidden


@on_a_device
@pytest.mark.parametrize("name", ["qwen35", "qwen3next", "glm4moe", "deepseek2-v3"])
@pytest.mark.parametrize("way", ["mtp", "auto"])
def test_guesses_change_no_text(
    name: str, way: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy and sampled, one text and several at once."""
    monkeypatch.setattr(AutoSpeculation, "tokens_worth", lambda *_, **__: 3)
    path = with_mtp(name).write(tmp_path / "model.gguf")
    prompts = [IDS.tolist(), [1, 2, 3] * 5, [5]]
    found = []
    for options in ({}, {"speculation": way}):
        with LLM(path, device="cuda", context=128, max_running=4, **options) as llm:
            for fields in (GREEDY, HOT):
                texts = [llm.stream(prompt, max_tokens=40, **fields) for prompt in prompts]
                found.append([text.result().token_ids for text in texts])
            if options:
                assert llm.stats.guessed_tokens > 0
                assert llm.engine.model.prepared.compilations_after_ready == 0
    assert found[:2] == found[2:]


@on_a_device
@pytest.mark.parametrize("kind", EAGLES)
def test_drafts_change_no_text(kind: str, tmp_path: Path) -> None:
    target = write_target(tmp_path / "target.gguf")
    draft = EAGLES[kind].write(tmp_path / "draft.gguf")
    found = []
    for options in ({}, {"draft": draft}):
        with LLM(target, device="cuda", context=128, max_running=4, **options) as llm:  # type: ignore[arg-type]
            for fields in (GREEDY, HOT):
                texts = [llm.stream([n, 2, 3] * 5, max_tokens=40, **fields) for n in range(3)]
                found.append([text.result().token_ids for text in texts])
            assert (llm.stats.guessed_tokens > 0) == bool(options)
    assert found[:2] == found[2:]
