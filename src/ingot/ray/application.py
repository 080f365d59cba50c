"""app: the Serve application of a configuration. It decides how replicas are deployed.

A configuration comes in from Python, or from the `args` of an application in a file of Serve or
KubeRay with `import_path: ingot.ray:app`. `application` takes the options of a server instead.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from ingot.ray.front import Front
from ingot.ray.models import named, unlocated
from ingot.ray.replica import Replica
from ingot.ray.router import PrefixRouter
from ingot.ray.scale import Scale, engine_of, fitted
from ingot.server.options import ServerOptions

REPLICAS = "ingot"  # the name of their deployment
_FRONT = "front"
_FRONT_REQUESTS = 10_000  # at once; each is little more than a buffer there
_RUNNING = 32  # of an engine that is not told otherwise
_HEALTH_SECONDS = 10.0


class AppConfig(BaseModel):
    """What `app` needs to know; a file of Serve has it as `args`."""

    model_config = ConfigDict(extra="forbid")

    models: list[str] = Field(min_length=1)  # `[NAME=]MODEL`, as for `ingot serve -m`
    engine: dict[str, Any] = {}  # fields of `EngineOptions`, for all models
    server: dict[str, Any] = {}  # fields of `ServerOptions`
    scale: dict[str, Any] = {}  # fields of `Scale`


def app(args: AppConfig) -> serve.Application:
    """The application of a configuration. Models are found, or downloaded, where replicas run."""
    sources = dict(map(named, args.models))
    try:
        scale = Scale(**args.scale)
        engine = engine_of(args.engine, scale)
        options = ServerOptions(
            models=unlocated(sources, engine), **{"allow_open": True, **args.server}
        )
    except TypeError as error:
        raise ConfigError(f"the configuration has a field that does not exist: {error}") from None
    return application(options, scale, sources)


def application(
    options: ServerOptions, scale: Scale, sources: Mapping[str, str]
) -> serve.Application:
    """The application of a server's options.

    `sources` say where models come from, for machines that do not have their files.
    """
    options = fitted(options, scale)
    slots = max(
        (model.engine.max_running or _RUNNING for model in options.models), default=_RUNNING
    )
    queue = max(
        (model.engine.max_queue for model in options.models), default=EngineOptions().max_queue
    )
    replicas = serve.deployment(
        Replica,
        name=REPLICAS,
        ray_actor_options={"num_cpus": scale.cpus, "num_gpus": scale.gpus},
        max_ongoing_requests=2 * slots,
        max_queued_requests=queue,
        health_check_period_s=_HEALTH_SECONDS,
        graceful_shutdown_timeout_s=options.shutdown_grace,
        request_router_config=RequestRouterConfig(request_router_class=PrefixRouter),
        **_count(scale, slots),
    )
    front = serve.deployment(
        Front,
        name=_FRONT,
        num_replicas=scale.fronts,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=_FRONT_REQUESTS,
        graceful_shutdown_timeout_s=options.shutdown_grace,
    )
    return front.bind(replicas.bind(options, sources, scale.pinned), options.max_body)


def _count(scale: Scale, slots: int) -> dict[str, Any]:
    """How many replicas: a number, or how Serve finds it."""
    if scale.max_replicas in (None, scale.replicas):
        return {"num_replicas": scale.replicas}
    policy = {}
    if scale.target_tokens is not None:
        policy["policy"] = AutoscalingPolicy(
            policy_function="ingot.ray.autoscaling:ByTokens",
            policy_kwargs={"tokens": scale.target_tokens},
        )
    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=scale.replicas,
            max_replicas=scale.max_replicas,
            target_ongoing_requests=scale.target_requests or slots,
            upscale_delay_s=scale.upscale_delay,
            downscale_delay_s=scale.downscale_delay,
            **policy,
        )
    }
