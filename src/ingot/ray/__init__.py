"""Ingot on Ray: servers with many replicas, and offline work on many machines.

`app` is a Ray Serve application around the HTTP server of `ingot serve`; `ingot serve --ray` runs
it. Ray starts, places, watches and scales the replicas; nothing of that is done here.
`pip install 'ingot-llm[ray]'` brings what it needs, and no other part of Ingot imports it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ingot.errors import ConfigError

if TYPE_CHECKING:
    from ingot.ray.application import AppConfig, app
    from ingot.ray.inference import Inference, batch_inference
    from ingot.ray.scale import Scale

__all__ = ["AppConfig", "Inference", "Scale", "app", "batch_inference"]

_HOMES = {
    "AppConfig": "application",
    "Inference": "inference",
    "Scale": "scale",
    "app": "application",
    "batch_inference": "inference",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_ray()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def require_ray() -> None:
    """Raise an error that says what to install, if something of it is missing."""
    try:
        for name in ("ray", "ray.serve", "ingot.server"):
            import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Ingot on Ray needs the package {error.name}: pip install 'ingot-llm[ray]'"
        ) from None
