"""Adapters of a running engine: chosen by requests, added and removed while others run."""

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from holding import held
from ingot import LLM
from ingot.adapters import Adapter, FloatMatrix, LowRank
from ingot.engine.adapters import EngineAdapters
from ingot.errors import AdapterError, SamplingError
from tiny_adapters import EVERYTHING, write_random_adapter

PROMPT = [256, *range(100), *range(40)]
GREEDY = {"temperature": 0, "ignore_eos": True, "max_tokens": 12}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Adapters of different ranks."""
    folder = tmp_path_factory.mktemp("adapters")
    return {
        name: write_random_adapter(folder / f"{name}.gguf", rank=rank, seed=rank)
        for name, rank in (("one", 3), ("two", 8), ("three", 17))
    }


@pytest.fixture
def llm(tiny: Path, files: dict[str, Path]) -> Iterator[LLM]:
    """The model with two adapters."""
    given = {name: files[name] for name in ("one", "two")}
    with LLM(tiny, threads=1, adapters=given) as opened:
        yield opened


def test_a_request_chooses_its_adapter(llm: LLM) -> None:
    choices: list[object] = [None, {}, {"one": 0.0}, "one", {"one": 1.0}, "two", {"one": 0.5}]
    texts = [llm.generate(PROMPT, adapter=choice, **GREEDY).token_ids for choice in choices]
    assert texts[0] == texts[1] == texts[2]
    assert texts[3] == texts[4]
    assert len({texts[0], texts[3], texts[5], texts[6]}) == 4
    assert llm.adapters == ("one", "two")


def test_a_batch_of_all_kinds_writes_what_each_writes_alone(llm: LLM) -> None:
    choices = [None, "one", "two", {"one": 0.5}, {"one": 0.5, "two": -0.5}, {"two": 0.1}]
    first, alone = [], []
    for choice in choices:
        first.append(llm.stream(PROMPT, adapter=choice, **GREEDY))
        alone.append(first[-1].result())  # requests hold the combination of two adapters
    llm.engine.clear_cache()
    with held(llm):
        requests = [llm.stream(PROMPT, adapter=choice, **GREEDY) for choice in choices * 2]
    together = [request.result() for request in requests]
    assert [done.token_ids for done in together] == [done.token_ids for done in alone * 2]


def test_scales_that_are_set_are_used_by_requests_that_choose_none(llm: LLM) -> None:
    one = llm.generate(PROMPT, adapter="one", **GREEDY).token_ids
    plain = llm.generate(PROMPT, **GREEDY).token_ids
    llm.engine.adapters.set_scales({"one": 1})
    assert llm.generate(PROMPT, **GREEDY).token_ids == one
    assert llm.generate(PROMPT, adapter={}, **GREEDY).token_ids == plain
    assert [info.scale for info in llm.engine.adapters.infos] == [1.0, 0.0]
    llm.engine.adapters.set_scales({})
    assert llm.generate(PROMPT, **GREEDY).token_ids == plain


def test_scales_of_the_options(tiny: Path, files: dict[str, Path]) -> None:
    options = {"adapters": {"one": files["one"]}, "adapter_scales": {"one": 0.5}}
    with LLM(tiny, threads=1, **options) as llm:  # type: ignore[arg-type]
        default = llm.generate(PROMPT, **GREEDY).token_ids
        assert default == llm.generate(PROMPT, adapter={"one": 0.5}, **GREEDY).token_ids
        assert default != llm.generate(PROMPT, adapter={}, **GREEDY).token_ids
        with pytest.raises(AdapterError, match="without adapters"):
            llm.embed("a")
        with pytest.raises(AdapterError, match="cannot be saved"):
            llm.save(PROMPT, "nowhere")


def test_the_prefix_cache_knows_the_adapter_and_its_scale(llm: LLM) -> None:
    def reused(choice: object) -> int:
        return llm.generate(PROMPT, adapter=choice, **GREEDY).timings.reused_tokens

    kinds: list[object] = [None, "one", "two", {"one": 0.5}, {"one": 1.0, "two": 1.0}]
    assert [reused(kind) for kind in kinds] == [0] * 5
    assert [reused(kind) for kind in kinds] == [len(PROMPT) - 1] * 5
    llm.remove_adapter("one")
    assert reused("two") == len(PROMPT) - 1


def test_an_adapter_of_the_same_name_is_another_one(llm: LLM, files: dict[str, Path]) -> None:
    before = llm.generate(PROMPT, adapter="one", **GREEDY)
    llm.remove_adapter("one")
    llm.add_adapter("one", files["three"])
    after = llm.generate(PROMPT, adapter="one", **GREEDY)
    assert after.timings.reused_tokens == 0
    assert after.token_ids != before.token_ids


def test_adapters_come_and_go_while_requests_run(llm: LLM, files: dict[str, Path]) -> None:
    long = GREEDY | {"max_tokens": 100}
    wanted = llm.generate(PROMPT, adapter="one", **long).token_ids
    llm.engine.clear_cache()
    running = llm.stream(PROMPT, adapter="one", **long)
    next(running)
    llm.remove_adapter("one")  # while it runs
    with pytest.raises(AdapterError, match="no adapter 'one'"):
        llm.stream(PROMPT, adapter="one")
    llm.add_adapter("three", files["three"])  # must not take the slot
    three = llm.generate(PROMPT, adapter="three", **GREEDY).token_ids
    assert running.result().token_ids == wanted
    assert llm.adapters == ("two", "three")
    del running
    gc.collect()
    llm.add_adapter("again", files["one"])  # takes the slot that is free now
    assert llm.generate(PROMPT, adapter="again", **long).token_ids == wanted
    assert llm.generate(PROMPT, adapter="three", **GREEDY).token_ids == three
    assert llm.engine.adapters._slots <= 3


def test_forks_beams_scores_and_logits_use_the_adapter(llm: LLM) -> None:
    with_it, without = llm.logits(PROMPT, adapter="one"), llm.logits(PROMPT)
    assert np.abs(with_it - without).max() > 0.1
    assert llm.score(PROMPT, adapter="one").logprobs != llm.score(PROMPT).logprobs
    request = llm.stream(PROMPT, adapter="one", **GREEDY)
    next(request)
    assert llm.fork(request, temperature=0)[0].result().token_ids == request.result().token_ids
    beams = [llm.beam_search(PROMPT, 2, max_tokens=4, adapter=name) for name in ("one", {})]
    assert beams[0][0].token_ids != beams[1][0].token_ids


def test_what_is_wrong_is_an_error(llm: LLM, files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="those that are loaded: 'one', 'two'"):
        llm.generate(PROMPT, adapter="four")
    with pytest.raises(AdapterError, match="already"):
        llm.add_adapter("one", files["two"])
    with pytest.raises(AdapterError, match="no adapter 'four'"):
        llm.remove_adapter("four")
    with pytest.raises(AdapterError, match=r"there is no adapter .*nowhere"):
        llm.add_adapter("four", tmp_path / "nowhere.gguf")
    for scale in (float("nan"), "1", True):
        with pytest.raises(SamplingError, match="finite number"):
            llm.generate(PROMPT, adapter={"one": scale})  # type: ignore[dict-item]
    with pytest.raises(SamplingError, match="a name, or names"):
        llm.generate(PROMPT, adapter=3)  # type: ignore[arg-type]
    assert llm.adapters == ("one", "two")


def test_an_adapter_that_cannot_be_opened_leaves_no_model_open(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="there is no adapter"):
        LLM(tiny, adapters={"a": tmp_path / "none.gguf"})
    with pytest.raises(AdapterError, match="no adapter 'b'"):
        LLM(tiny, adapter_scales={"b": 1.0})


def test_models_that_guess_tokens(tiny: Path, files: dict[str, Path]) -> None:
    given = {"one": files["one"]}
    with LLM(tiny, threads=1, adapters=given) as plain:
        wanted = plain.generate(PROMPT, adapter="one", **GREEDY).token_ids
    with LLM(tiny, threads=1, adapters=given, draft=tiny) as guessing:
        assert guessing.generate(PROMPT, adapter="one", **GREEDY).token_ids == wanted


def test_nobody_waits_for_an_adapter_that_is_made_ready() -> None:
    """Two adapters of one request, whose ranks add up, take long; others go on."""
    ranks: list[int] = []
    attaching, may_end = Event(), Event()

    def read(path: object) -> Adapter:
        low = LowRank(FloatMatrix.of(np.zeros((4, 8))), FloatMatrix.of(np.zeros((8, 4))), 1.0)
        return Adapter(str(path), {"blk.0.attn_q.weight": low})

    def attach(_: int, adapter: Adapter | None) -> None:
        if adapter is not None and adapter.rank > 4:
            attaching.set()
            assert may_end.wait(60)

    adapters = EngineAdapters(read, ranks.append, attach)
    adapters.add("a", "a.gguf", 1.0)
    adapters.add("b", "b.gguf")
    both = {"a": 1.0, "b": 0.5}
    with ThreadPoolExecutor(2) as pool:
        mixing = [pool.submit(adapters.use, both) for _ in range(2)]
        assert attaching.wait(60)
        assert ranks[:3] == [4, 4, 8], "outside of the lock, before it gets a slot"
        assert [info.name for info in adapters.infos] == ["a", "b"]
        chosen = adapters.use("b")
        assert chosen
        assert adapters.places(chosen) == {1: 1.0}
        assert adapters.places(adapters.use(None)) == {0: 1.0}
        may_end.set()
        uses = [made.result() for made in mixing]
    assert uses[0]
    assert uses[1]
    assert uses[0].held is uses[1].held, "the second one found it"
    assert adapters.places(uses[0]) == {0: 1.0, 1: 0.5}


def test_only_some_layers(tiny: Path, tmp_path: Path) -> None:
    last = [name for name in EVERYTHING if name.startswith("blk.1.")]
    file = write_random_adapter(tmp_path / "last.gguf", names=last)
    with LLM(tiny, threads=1, adapters={"last": file}) as llm:
        assert np.abs(llm.logits(PROMPT, adapter="last") - llm.logits(PROMPT)).max() > 0.1


def test_the_memory_of_a_removed_adapter_is_freed(llm: LLM) -> None:
    llm.generate(PROMPT, adapter="one", **GREEDY)
    held = llm.engine.adapters._named["one"].held.adapter.tensors
    matrices = [weakref.ref(_owner(low.up.values)) for low in held.values()]
    del held
    llm.remove_adapter("one")
    gc.collect()
    assert all(matrix() is None for matrix in matrices)


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory it is."""
    return array if not isinstance(array.base, np.ndarray) else _owner(array.base)
