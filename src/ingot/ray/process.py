"""Runs the application on a cluster until a signal comes: what `ingot serve --ray` does."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError

from ingot.errors import ConfigError
from ingot.machine import END_SIGNALS
from ingot.ray.application import application
from ingot.ray.pool import connect
from ingot.ray.scale import Scale
from ingot.server.options import ServerOptions
from ingot.server.process import free_address, shown_address

_NAME = "ingot"  # of the application in Ray's dashboard


def serve_on_ray(
    options: ServerOptions,
    scale: Scale,
    sources: Mapping[str, str],
    address: str | None,
    report: Callable[[str], None],
) -> None:
    """Serve until a signal comes; `report` takes messages for the person who started it.

    Without an address: on the cluster of RAY_ADDRESS, or of this machine, or a new one.
    """
    port = free_address(options)
    if (dashboard := connect(address)) is not None:
        report(f"Ray's dashboard: {dashboard}")
    with _signals() as stopped:
        try:
            where = shown_address(options, port)
            if serve.status().proxies:
                where = "the address where Serve of this cluster listens already"
            serve.start(http_options=_http_options(options, port))
            serve.run(application(options, scale, sources), name=_NAME, route_prefix="/")
            report(f"serving {', '.join(model.name for model in options.models)} at {where}")
            stopped.wait()
            report("stopping")
        except (RuntimeError, RayError) as error:  # a replica or the proxy could not start
            raise ConfigError(f"the server could not start on Ray: {error}") from None
        finally:
            serve.delete(_NAME)  # other applications of the cluster stay
            ray.shutdown()


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that the first signal sets; the second one ends the process."""
    stopped = threading.Event()
    last: list[int] = []

    def stop(number: int, _: object) -> None:
        if stopped.is_set():
            raise SystemExit(128 + number)
        last.append(number)
        stopped.set()

    before = {number: signal.signal(number, stop) for number in END_SIGNALS}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if last == [signal.SIGINT]:
        raise KeyboardInterrupt


def _http_options(options: ServerOptions, port: int) -> dict[str, Any]:
    """Where Serve's proxies listen."""
    found: dict[str, Any] = {"host": options.host, "port": port}
    if options.tls_certificate is not None:
        found["ssl_certfile"] = str(options.tls_certificate)
        found["ssl_keyfile"] = str(options.tls_key)
    return found
