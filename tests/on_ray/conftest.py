"""A Ray cluster of two nodes on this machine, and a model that says given texts."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_servers import WORDS

from scripted_gguf import write_scripted_gguf

# Ray's processes start slowly on a machine that does other things.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "300")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It says a long text, or a short one."""
    scripts = {"one": "First.", "two": "Second.", "long": "word " * WORDS}
    return write_scripted_gguf(tmp_path_factory.mktemp("ray") / "model.gguf", scripts)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes, each with two cores as Ray counts them."""
    pytest.importorskip("ray", reason="Ray is not here: pip install 'ingot-llm[ray]'")
    import ray  # noqa: PLC0415
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    from ingot.ray.pool import FAST  # noqa: PLC0415

    os.environ.update(FAST)  # as for a cluster that `ingot serve --ray` starts
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    nodes.add_node(num_cpus=2)
    ray.init(nodes.address, logging_level="warning", log_to_driver=False)
    try:
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()
