"""The files in docs/ray.md are what Ray and Kubernetes take."""

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # it imports Ray
pytest.importorskip("ray", reason="Ray is not here: pip install 'ingot-llm[ray]'")

PAGE = (Path(__file__).parents[2] / "docs" / "ray.md").read_text()


def documented(word: str) -> Any:
    """The only YAML file of the page that has this word."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return yaml.safe_load(found)


def check_application(config: Any) -> Any:
    """Serve's own check of a file, and the application that Ingot makes of its arguments."""
    from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415

    from ingot.ray import AppConfig, app  # noqa: PLC0415

    (described,) = ServeDeploySchema.model_validate(config).applications
    assert described.import_path == "ingot.ray:app"
    return app(AppConfig(**described.args))._bound_deployment


def test_the_file_for_serve_deploy() -> None:
    front = check_application(documented("# config.yaml"))
    assert front.name == "front"
    (replicas, _) = front.init_args
    scaling = replicas._bound_deployment._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (2, 16)
    assert scaling.policy.policy_function == "ingot.ray.autoscaling:ByTokens"


def test_the_file_for_ray_up() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config  # noqa: PLC0415

    config = prepare_config(documented("# cluster.yaml"))
    validate_config(config)
    workers = config["available_node_types"]["worker"]
    assert workers["max_workers"] <= config["max_workers"]


def test_the_file_for_kuberay() -> None:
    service = documented("kind: RayService")
    front = check_application(yaml.safe_load(service["spec"]["serveConfigV2"]))
    (replicas, _) = front.init_args
    cluster = service["spec"]["rayClusterConfig"]
    assert cluster["rayVersion"] == version("ray")
    (group,) = cluster["workerGroupSpecs"]
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    (container,) = group["template"]["spec"]["containers"]
    reserved = replicas._bound_deployment.ray_actor_options["num_cpus"]
    assert reserved < int(container["resources"]["requests"]["cpu"])
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in group["template"]["spec"]["volumes"]}


def test_the_settings_that_make_serve_faster_are_those_that_the_command_uses() -> None:
    from ingot.ray.pool import FAST  # noqa: PLC0415

    service = documented("kind: RayService")["spec"]["rayClusterConfig"]
    pods = [service["headGroupSpec"], *service["workerGroupSpecs"]]
    for pod in pods:
        (container,) = pod["template"]["spec"]["containers"]
        assert {each["name"]: each["value"] for each in container["env"]} == FAST
    for name, value in FAST.items():
        assert f"{name}={value}" in PAGE


def test_ray_s_own_builder_of_language_models_needs_another_engine() -> None:
    with pytest.raises(ImportError, match="Neither vLLM nor SGLang is installed"):
        import ray.serve.llm  # noqa: F401, PLC0415
    assert "`Neither vLLM nor SGLang is installed`" in PAGE
