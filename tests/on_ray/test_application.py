"""What a configuration becomes, and which ones are refused; nothing is started."""

from typing import Any

import pytest
from pydantic import ValidationError

from ingot.errors import ConfigError

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # it imports Ray
pytest.importorskip("ray", reason="Ray is not here: pip install 'ingot-llm[ray]'")


def made(**fields: Any) -> Any:
    from ingot.ray import AppConfig, app  # noqa: PLC0415

    return app(AppConfig(**{"models": ["a=one.gguf", "two.gguf"], **fields}))


def test_serve_builds_it_from_a_file() -> None:
    from ray.serve._private.api import (  # noqa: PLC0415
        call_user_app_builder_with_args_if_necessary,
    )

    from ingot.ray import app  # noqa: PLC0415

    args = {"models": ["m.gguf"], "scale": {"replicas": 3}}
    built = call_user_app_builder_with_args_if_necessary(app, args)
    assert built._bound_deployment.name == "front"


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"models": []}, ValidationError, "at least 1"),
        ({"model": "x"}, ValidationError, "Extra inputs"),
        ({"engine": {"thread": 1}}, ConfigError, "did you mean 'threads'"),
        ({"server": {"nothing": 1}}, ConfigError, "does not exist"),
        ({"scale": {"nothing": 1}}, ConfigError, "does not exist"),
        ({"scale": {"replicas": 0}}, ConfigError, "at least one"),
        ({"scale": {"replicas": 3, "max_replicas": 2}}, ConfigError, "must not be less"),
        ({"scale": {"gpus": 0.5}}, ConfigError, "one whole device"),
        ({"scale": {"gpus": 1}, "engine": {"device": "cpu"}}, ConfigError, "would be idle"),
        ({"engine": {"device": "cuda"}}, ConfigError, "set gpus to 1"),
        ({"models": ["=x.gguf"]}, ConfigError, "no name"),
    ],
)
def test_wrong_configurations(fields: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        made(**fields)


def test_a_replica_with_a_gpu_gets_engines_that_use_it() -> None:
    replicas = made(scale={"gpus": 1})._bound_deployment.init_args[0]._bound_deployment
    assert replicas.ray_actor_options["num_gpus"] == 1
    assert [model.engine.device for model in replicas.init_args[0].models] == ["cuda", "cuda"]


def test_more_replicas_for_tokens_in_flight() -> None:
    from types import SimpleNamespace  # noqa: PLC0415
    from unittest.mock import patch  # noqa: PLC0415

    from ingot.ray import autoscaling  # noqa: PLC0415

    policy = autoscaling.ByTokens(tokens=1000)

    def wanted(by_requests: int, *tokens: float) -> int:
        context: Any = SimpleNamespace(
            aggregated_metrics={"tokens": dict(enumerate(tokens))},
            capacity_adjusted_max_replicas=5,
        )
        name = "replica_queue_length_autoscaling_policy"
        with patch.object(autoscaling, name, lambda _: (by_requests, {})):
            return policy(context)[0]

    assert wanted(1, 400, 500) == 1
    assert wanted(1, 1400, 900) == 3
    assert wanted(4, 1400, 900) == 4
    assert wanted(1, 90_000) == 5


def test_an_engine_that_hangs_fails_the_check_that_serve_makes() -> None:
    import asyncio  # noqa: PLC0415
    from types import SimpleNamespace  # noqa: PLC0415

    from ingot.engine.health import Health  # noqa: PLC0415
    from ingot.errors import EngineError  # noqa: PLC0415
    from ingot.ray.replica import Replica  # noqa: PLC0415

    health = Health("m", step_timeout=1e-9)
    open_model = SimpleNamespace(llm=SimpleNamespace(engine=health))
    entries = {"m": open_model, "n": SimpleNamespace(llm=None)}  # one is not open
    server = SimpleNamespace(catalog=SimpleNamespace(entries=entries))
    replica: Any = SimpleNamespace(_server=server)
    asyncio.run(Replica.check_health(replica))
    health.begin_step()
    with pytest.raises(EngineError, match="step_timeout"):
        asyncio.run(Replica.check_health(replica))


@pytest.mark.parametrize(
    ("given", "url"), [("10.0.0.1:8265", "http://10.0.0.1:8265"), ("", None), (None, None)]
)
def test_a_connection_tells_where_the_dashboard_is(
    given: str | None, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace  # noqa: PLC0415

    from ingot.ray import pool  # noqa: PLC0415

    for name, value in pool.FAST.items():
        monkeypatch.setenv(name, value)
    found = SimpleNamespace(dashboard_url=given)
    monkeypatch.setattr(pool.ray, "init", lambda _, logging_level: found)  # noqa: ARG005
    assert pool.connect("head:6379") == url


def test_a_stream_goes_out_in_few_lists_with_all_of_its_bytes() -> None:
    """The start in one, the first token in one, then many tokens together."""
    import asyncio  # noqa: PLC0415

    from ingot.ray.call import Call, Route  # noqa: PLC0415
    from ingot.ray.replica import Replica  # noqa: PLC0415

    received: asyncio.Queue[None] = asyncio.Queue()

    async def application(_: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"asked"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(200):
            if number in (1, 2):
                await received.get()  # the list before
            await asyncio.sleep(0)  # each is ready for itself
            await send(
                {"type": "http.response.body", "body": b"%d " % number, "more_body": number < 199}
            )

    async def answered() -> list[list[dict[str, Any]]]:
        replica: Any = object.__new__(Replica)
        replica._app, replica._streams = application, 0
        call = Call({"path": "/"}, b"asked", Route.PREFIX)
        lists = []
        async for each in Replica.answer(replica, call):
            lists.append(each)
            received.put_nowait(None)
        assert replica._streams == 0
        return lists

    lists = asyncio.run(answered())
    messages = [message for each in lists for message in each]
    assert [each["type"] for each in lists[0]] == ["http.response.start", "http.response.body"]
    assert [message["body"] for message in lists[1]] == [b"1 "]
    assert b"".join(each["body"] for each in messages[1:]) == b"".join(
        b"%d " % number for number in range(200)
    )
    assert [each["more_body"] for each in messages[1:]] == [True] * (len(messages) - 2) + [False]
    assert len(lists) < 20
