"""The public surface: typed names, pairs of methods, everything a user meets exported."""

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args, get_origin

import pytest

import ingot
from holding import PATIENCE
from ingot import LLM, EngineOptions, IngotError, SamplingParams
from ingot.engine.options import EngineFields
from ingot.engine.request_fields import RequestFields
from ingot.errors import UnknownParameterError
from ingot.sampling.fields import SamplingFields
from ingot.sampling.params import _CONVERTED, ALIASES
from tiny_llama import write_tiny_llama

PAIRS = [
    ("generate", "agenerate"),
    ("stream", "astream"),
    ("chat", "achat"),
    ("batch", "abatch"),
    ("embed", "aembed"),
    ("run_tools", "arun_tools"),
]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_llama(path)
    with LLM(path, threads=1) as opened:
        yield opened


def test_typed_names_are_the_fields_and_their_aliases() -> None:
    known = {entry.name for entry in fields(SamplingParams)} | ALIASES.keys() | _CONVERTED
    assert set(SamplingFields.__annotations__) == known
    assert set(EngineFields.__annotations__) == {entry.name for entry in fields(EngineOptions)}
    submit = inspect.signature(ingot.InferenceEngine.submit_request).parameters
    others = set(RequestFields.__annotations__) - known
    assert others == submit.keys() - {"self", "prompt", "params", "progress", "parse"}


def test_typed_names_have_the_types_of_the_fields() -> None:
    typed = SamplingFields.__annotations__
    for name in ("temperature", "top_k", "seed", "ignore_eos", "time_limit"):
        assert _plain(typed[name]) == _plain(SamplingParams.__dataclass_fields__[name].type)
    engine = EngineFields.__annotations__
    for entry in fields(EngineOptions):
        assert engine[entry.name] == entry.type, entry.name


def _plain(kind: object) -> set[object]:
    """The types of a union but None."""
    parts = get_args(kind) if get_origin(kind) is not None or get_args(kind) else (kind,)
    return set(parts) - {type(None)}


@pytest.mark.parametrize(("plain", "coroutine"), PAIRS)
def test_plain_and_async_methods_take_the_same(plain: str, coroutine: str) -> None:
    one, other = (inspect.signature(getattr(LLM, name)) for name in (plain, coroutine))
    assert one.parameters == other.parameters


def test_a_typing_error_names_the_nearest_parameter(llm: LLM, tmp_path: Path) -> None:
    with pytest.raises(UnknownParameterError, match="did you mean 'max_tokens'"):
        llm.generate("a", max_token=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'threads'"):
        LLM(tmp_path / "none.gguf", thread=3)  # type: ignore[call-arg]
    with pytest.raises(UnknownParameterError, match="did you mean 'temperature'"):
        llm.session(temprature=1)  # type: ignore[call-arg]
    request = llm.stream("a", max_tokens=3)
    with pytest.raises(UnknownParameterError, match="did you mean 'seed'"):
        request.fork(sead=1)  # type: ignore[call-arg]


def test_no_parameters_and_default_parameters_mean_the_same(llm: LLM) -> None:
    request = llm.stream("abc")
    assert request.params == SamplingParams()
    assert llm.stream("abc", SamplingParams()).params == request.params
    assert llm.stream("abc", max_tokens=None).params == SamplingParams(max_tokens=None)


def test_coroutines_give_what_methods_give(llm: LLM) -> None:
    asked = {"max_tokens": 6, "temperature": 0.0, "ignore_eos": True}
    prompts = ["abc", "hello", "x"]

    async def ask() -> tuple[str, list[str], str, bytes]:
        one = await llm.agenerate("abc", **asked)
        many = await llm.abatch(prompts, **asked)
        pieces = [piece async for piece in llm.astream("hello", **asked)]
        return (
            one.text,
            [each.text for each in many],
            "".join(pieces),
            (await llm.aembed("abc")).tobytes(),
        )

    one, many, streamed, embedded = asyncio.run(ask())
    assert one == llm.generate("abc", **asked).text
    assert many == [each.text for each in llm.batch(prompts, **asked)]
    assert streamed == many[1]
    assert embedded == llm.embed("abc").tobytes()


def test_a_cancelled_batch_cancels_its_requests(llm: LLM) -> None:
    async def ask() -> None:
        endless = {"max_tokens": None, "ignore_eos": True, "context_overflow": "shift"}
        task = asyncio.create_task(llm.abatch(["a"] * 4, **endless))
        while llm.stats.running < 4:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while llm.stats.running:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(ask(), PATIENCE))
    assert llm.stats.running == 0


@dataclass
class Digit:
    value: bool


def test_a_stream_with_a_schema_has_a_parsed_result(llm: LLM) -> None:
    request = llm.stream("a digit: ", schema=Digit, seed=3, max_tokens=None)
    text = "".join(request)
    done = request.result()
    assert done.finish_reason == "stop"
    assert done.text == text
    assert isinstance(done.parsed, Digit)
    forked = request.fork(seed=9).result()
    assert isinstance(forked.parsed, Digit)


def test_every_public_name_can_be_imported_and_all_errors_are_in_one_tree() -> None:
    found = {name: getattr(ingot, name) for name in ingot.__all__}
    errors = {name for name, each in vars(ingot.errors).items() if _is_error(each)}
    assert errors <= found.keys()
    assert all(issubclass(found[name], IngotError) for name in errors)
    assert {"Completion", "Score", "Timings", "Reply", "TokenLogprobs", "Request"} <= found.keys()


def _is_error(each: object) -> bool:
    return (
        isinstance(each, type)
        and issubclass(each, Exception)
        and each.__module__ == ("ingot.errors")
    )


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(ingot.__file__).parent / "py.typed").exists()
