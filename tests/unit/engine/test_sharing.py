"""What texts share: prefixes, forks, saved caches, too small a cache; and that nobody notices."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holding import PATIENCE, held
from ingot import LLM
from ingot.backends.reference import Reference
from ingot.engine import RequestState
from ingot.errors import FileWriteError, SamplingError, SavedCacheError
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.quant import decode
from tiny_llama import CONTEXT, write_tiny_llama

PROMPT = [256, *range(100), *range(40)]
GREEDY = {"temperature": 0, "ignore_eos": True}
HOT = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True}


def test_a_second_prompt_finds_the_first(llm: LLM) -> None:
    first = llm.generate(PROMPT, max_tokens=10, **GREEDY)
    second = llm.generate(PROMPT, max_tokens=10, **GREEDY)
    assert second.token_ids == first.token_ids
    assert (first.timings.reused_tokens, second.timings.reused_tokens) == (0, 140)
    other = llm.generate([*PROMPT[:70], 9, 9], max_tokens=1, **GREEDY)
    assert other.timings.reused_tokens == 70
    short = llm.generate(PROMPT[:20], max_tokens=1, **GREEDY)
    assert short.timings.reused_tokens == 19
    assert llm.generate([*PROMPT[:3], 9, 9], max_tokens=1).timings.reused_tokens == 0
    llm.engine.clear_cache()
    assert llm.generate(PROMPT, max_tokens=1, **GREEDY).timings.reused_tokens == 0


def test_a_short_prompt_finds_the_beginning_of_another(tiny: Path) -> None:
    """Of texts with fewer tokens than a block, too, and nobody notices."""
    prompts = [[*range(12), n, n + 1, *range(n)] for n in range(30, 36)]
    with LLM(tiny, threads=1, reuse="none") as plain:
        expected = [plain.generate(prompt, max_tokens=9, seed=1, **HOT).text for prompt in prompts]
    with LLM(tiny, threads=1) as llm:
        done = [llm.generate(prompt, max_tokens=9, seed=1, **HOT) for prompt in prompts * 2]
        assert [each.text for each in done] == expected * 2
        reused = [each.timings.reused_tokens for each in done]
        assert reused == [0, *[12] * 5, *[len(prompt) - 1 for prompt in prompts]]
        assert llm.stats.blocks_held == 0


def test_a_text_that_is_to_be_read_anew(llm: LLM) -> None:
    first = llm.generate(PROMPT, max_tokens=10, reuse=False, **GREEDY)
    second = llm.generate(PROMPT, max_tokens=10, reuse=False, **GREEDY)
    third = llm.generate(PROMPT, max_tokens=10, **GREEDY)
    assert [done.timings.reused_tokens for done in (first, second, third)] == [0, 0, 140]
    assert first.token_ids == second.token_ids == third.token_ids
    both = [llm.stream(PROMPT, max_tokens=10, reuse=False, **GREEDY) for _ in range(2)]
    assert [request.result().timings.reused_tokens for request in both] == [0, 0]


def test_tokens_that_were_written_are_saved_as_such(llm: LLM, tmp_path: Path) -> None:
    request = llm.stream(PROMPT, max_tokens=60, **GREEDY)
    written = request.result().token_ids
    assert [choice.token for choice in request.sampled_tokens(50)] == list(written[50:])
    path = tmp_path / "text"
    runs = llm.stats.steps
    assert llm.engine.save([*PROMPT, *written], path, prompted=len(PROMPT)) == 192
    assert llm.stats.steps - runs < 20  # they were in the cache
    assert llm.engine.save([*PROMPT, *written], path) == 192
    assert llm.restore(path) == (*PROMPT, *written)[:192]


def test_a_conversation_finds_what_was_written(llm: LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=60, **GREEDY)
    history = [*PROMPT, *done.token_ids, 5, 6, 7]
    again = llm.generate(history, max_tokens=5, **GREEDY)
    assert again.timings.reused_tokens == len(history) - 4 == 200
    other = llm.generate(history, max_tokens=5, **GREEDY)
    assert other.timings.reused_tokens == len(history) - 1
    assert other.token_ids == again.token_ids


def test_reuse_of_prompts_alone_changes_no_bit(tiny: Path) -> None:
    with LLM(tiny, threads=1, reuse="none") as plain:
        history = [*PROMPT, *plain.generate(PROMPT, max_tokens=60, **GREEDY).token_ids]
        expected = plain.generate(history, max_tokens=20, seed=1, **HOT)
        rows = plain.generate(history, max_tokens=3, logprobs=True, **GREEDY).logprobs
        assert plain.generate(PROMPT, max_tokens=1).timings.reused_tokens == 0
    with LLM(tiny, threads=1, reuse="prompt") as llm:
        llm.generate(PROMPT, max_tokens=60, **GREEDY)
        done = llm.generate(history, max_tokens=20, seed=1, **HOT)
        assert done.timings.reused_tokens == len(PROMPT)  # and nothing that was written
        assert done.token_ids == expected.token_ids
        assert llm.generate(history, max_tokens=3, logprobs=True, **GREEDY).logprobs == rows


def test_prompts_that_come_together_are_read_once(tiny: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def hold(_: Any, __: Any) -> None:
        began.set()
        assert go_on.wait(PATIENCE)

    with LLM(tiny, threads=1) as llm:
        first = llm.stream([7], max_tokens=2, processors=[hold], **GREEDY)
        assert began.wait(PATIENCE)
        requests = [llm.stream(PROMPT, max_tokens=3, seed=n, **HOT) for n in range(6)]
        go_on.set()
        reused = sorted(request.result().timings.reused_tokens for request in requests)
        assert reused == [0, *[128] * 5]
        first.cancel()


def test_too_small_a_cache_changes_no_text(tiny: Path) -> None:
    """Eight texts that need three times what there is: they take turns and lose nothing."""
    prompts = [[n + 1, *PROMPT[:60]] for n in range(8)]
    with LLM(tiny, threads=1, reuse="none", cache_tokens=4096) as llm:
        expected = [
            llm.generate(prompt, max_tokens=90, seed=n, **HOT).token_ids
            for n, prompt in enumerate(prompts)
        ]
    for reuse in ("none", "all"):
        with LLM(tiny, threads=1, reuse=reuse, cache_tokens=416) as llm:
            with held(llm):
                requests = [
                    llm.stream(prompt, max_tokens=90, seed=n, **HOT)
                    for n, prompt in enumerate(prompts)
                ]
            assert [request.result().token_ids for request in requests] == expected
            assert llm.stats.preemptions > 0
            assert llm.stats.blocks_held == 0


def test_a_fork_goes_on_from_here(llm: LLM) -> None:
    began, forked = threading.Event(), threading.Event()

    def hold(token_ids: np.ndarray, _: Any) -> None:
        """Go on for a step whenever somebody wants to fork the text, which then has not ended."""
        if len(token_ids) >= len(PROMPT) + 20:
            began.set()
            while llm.engine._loop._inbox.empty() and not forked.is_set():
                time.sleep(0.001)

    request = llm.stream(PROMPT, max_tokens=50, seed=3, processors=[hold], **HOT)
    assert began.wait(PATIENCE)
    fork = request.fork(seed=3, processors=())
    other = llm.fork(request, 2)
    forked.set()
    done = request.result()
    assert fork.result().token_ids == done.token_ids, "the same seed writes the same"
    assert fork.text == done.text
    added = "".join(fork)
    assert 0 < len(added) < len(fork.text)
    assert fork.text.endswith(added)
    for each in other:
        assert each.result().token_ids != done.token_ids
        assert each.seed != request.seed
    assert llm.stats.blocks_held == 0


def test_a_fork_of_a_text_that_has_ended(llm: LLM) -> None:
    done = llm.stream(PROMPT, max_tokens=10, **GREEDY)
    done.result()
    same = done.fork()
    assert same.state is RequestState.DONE
    assert (same.result().token_ids, list(same)) == (done.token_ids, [])
    told = llm.stream(PROMPT, max_tokens=4, n_probs=2, **GREEDY)
    told.result()
    assert told.fork(max_tokens=6).result().logprobs[:4] == told.logprobs
    longer = done.fork(max_tokens=15)
    assert longer.result().token_ids == llm.generate(PROMPT, max_tokens=15, **GREEDY).token_ids
    with pytest.raises(SamplingError, match="max_tokens is -2"):
        done.fork(max_tokens=-2)


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_a_saved_text_comes_back(tiny: Path, tmp_path: Path, kv_type: str) -> None:
    file = tmp_path / "text.kv"
    with LLM(tiny, threads=1, kv_type=kv_type, precision="exact") as llm:
        request = llm.stream(PROMPT, max_tokens=40, seed=5, **HOT)
        done = request.result()
        history = [*PROMPT, *done.token_ids, 1, 2]
        expected = llm.generate(history, max_tokens=10, seed=6, **HOT)
        llm.save(request, file)
    with LLM(tiny, threads=1, kv_type=kv_type, precision="exact") as llm:
        assert llm.restore(file) == tuple([*PROMPT, *done.token_ids][:160])
        again = llm.generate(history, max_tokens=10, seed=6, **HOT)
        # A file has whole blocks of a text, the cache also what comes after them.
        reused = [each.timings.reused_tokens for each in (again, expected)]
        assert reused == [160, 180]
        assert again.token_ids == expected.token_ids
        assert llm.restore(file)  # twice is once
        llm.save("short", file)  # less than a block
        assert llm.restore(file) == ()


def test_saved_files_that_cannot_be_used(tiny: Path, tmp_path: Path, llm: LLM) -> None:
    file = tmp_path / "text.kv"
    llm.save(PROMPT, file)
    content = file.read_bytes()
    other = write_tiny_llama(tmp_path / "other.gguf", layers=1)
    with LLM(other, threads=1) as wrong, pytest.raises(SavedCacheError, match="another model"):
        wrong.restore(file)
    with (
        LLM(tiny, threads=1, kv_type="f32") as wrong,
        pytest.raises(SavedCacheError, match="'f16'"),
    ):
        wrong.restore(file)
    with pytest.raises(SavedCacheError, match="No such file"):
        llm.restore(tmp_path / "none")
    with pytest.raises(FileWriteError, match="cannot be written: No such file"):
        llm.save(PROMPT, tmp_path / "no" / "folder")
    for damage, message in {
        b"GGUF" + content: "is not a saved cache",
        content[:8] + b"\x09" + content[9:]: "has version 9",
        content[:-40]: "length does not match",
        content[:20] + b"?" + content[21:]: "header cannot be read",
        content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]: "its digest",
        content[:-1] + bytes([content[-1] ^ 1]): "its digest",
        b"": "is not a saved cache",
    }.items():
        file.write_bytes(damage)
        with pytest.raises(SavedCacheError, match=message):
            llm.restore(file)
    assert len(llm.generate(PROMPT, max_tokens=3, **GREEDY).token_ids) == 3


def test_every_damaged_byte_of_a_saved_file_is_found(tmp_path: Path, llm: LLM) -> None:
    file = tmp_path / "text.kv"
    llm.save(PROMPT[:40], file)
    content = bytearray(file.read_bytes())
    for at in {*range(0, 400), *range(400, len(content), 97), len(content) - 1}:
        content[at] ^= 0x11
        file.write_bytes(content)
        with pytest.raises(SavedCacheError):
            llm.restore(file)
        content[at] ^= 0x11


def test_states_are_those_of_the_reference(llm: LLM) -> None:
    states = llm.hidden_states(PROMPT)
    assert states.shape == (3, len(PROMPT), 64)
    for layers in (1, 2):  # a graph that ends behind so many layers
        end = next(
            at
            for at, op in enumerate(llm.graph.ops)
            if [value.name for value in op.outputs] == [f"blk.{layers - 1}.ffn_residual"]
        )
        ops = list(llm.graph.ops[: end + 1])
        if layers == 1:  # the last one has selected the rows that are wanted
            ops.append(o.Select(source=ops[-1].outputs[0], out=o.Value("states", 64)))
        kv_layers = llm.graph.kv_layers[:layers]
        graph = ComputationGraph(tuple(ops), ops[-1].outputs[0], kv_layers, CONTEXT)
        true = Reference(graph, llm.file).forward(PROMPT)
        assert np.abs(states[layers] - true).max() < 0.02 * np.abs(true).max()
    embedding = llm.file.tensors["token_embd.weight"]
    rows = decode(embedding.data, embedding.type, embedding.shape)[PROMPT]
    np.testing.assert_array_equal(states[0], rows)


def test_embeddings(llm: LLM) -> None:
    texts = ["a", "b c", "x" * 100, *(f"text {n}" for n in range(40))]
    mean = llm.embed(texts)
    assert (mean.shape, mean.dtype) == ((43, 64), np.float32)
    np.testing.assert_allclose(np.linalg.norm(mean, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(llm.embed("b c"), mean[1])
    assert llm.embed([]).shape == (0, 64)
    last, first = (llm.embed(texts, pooling=way, normalize=False) for way in ("last", "cls"))
    assert not np.allclose(last, first)
    np.testing.assert_array_equal(first, np.broadcast_to(first[0], first.shape), "all begin alike")
    with pytest.raises(SamplingError, match="pooling is 'max'"):
        llm.embed("x", pooling="max")  # type: ignore[arg-type]


def test_long_texts_have_states_too(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "long.gguf", keys={"llama.context_length": 2048})
    with LLM(path, threads=1) as llm:
        ids = np.arange(1300) % 250
        whole = llm.hidden_states(ids)
        np.testing.assert_array_equal(whole[:, :500], llm.hidden_states(ids[:500]))
        assert llm.embed("y" * 1500).shape == (64,)
