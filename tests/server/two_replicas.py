"""Two replicas of a server on a Ray cluster that lasts as long as the tests: `make test-ray`.

There is one such server at a time, because it has all of the cluster's URLs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from ports import quiet_port
from ray import serve

from ingot.ray.application import application
from ingot.ray.pool import connect
from ingot.ray.scale import Scale
from ingot.server import ServerOptions

_NAME = "ingot"


def is_free() -> bool:
    """Whether no server runs there."""
    _started()
    return _NAME not in serve.status().applications


@contextmanager
def two_replicas(options: ServerOptions) -> Iterator[str]:
    """The URL of two replicas, until the end of the context."""
    port = _started()
    serve.run(application(options, Scale(replicas=2, cpus=0.5), {}), name=_NAME)
    try:
        yield f"http://localhost:{port}"
    finally:
        serve.delete(_NAME)


@cache
def _started() -> int:
    """Start Ray, which ends with this process: the port where Serve listens."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "300")
    connect("local")
    port = quiet_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    return port
