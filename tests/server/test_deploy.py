"""The files of deploy/: they parse, and name options, paths and metrics that the server has."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from typer.main import get_command
from typer.testing import CliRunner

from ingot.cli import app
from ingot.engine import EngineOptions
from ingot.server import ServedModel, ServerOptions, create_app
from tiny_llama import write_tiny_llama

DEPLOY = Path(__file__).parents[2] / "deploy"
YAML = sorted(DEPLOY.rglob("*.yaml"))


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


COMPOSE = documents("compose.yaml")[0]
CLAIM, DEPLOYMENT, SERVICE = documents("kubernetes.yaml")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENTRYPOINT = json.loads(
    (DEPLOY / "Containerfile").read_text().rpartition("\nENTRYPOINT ")[2].strip()
)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server that has answered once."""
    path = write_tiny_llama(tmp_path_factory.mktemp("deploy") / "tiny.gguf")
    model = ServedModel(name="tiny", path=path, engine=EngineOptions(threads=1))
    server = create_app(ServerOptions(models=(model,)))
    with TestClient(server, base_url="http://localhost") as opened:
        opened.post("/v1/completions", json={"prompt": "abc", "max_tokens": 3})
        yield opened


@pytest.fixture(scope="module")
def exposed(http: TestClient) -> set[str]:
    """The names of all samples of Ingot's own metrics."""
    families = text_string_to_metric_families(http.get("/metrics").text)
    names = {sample.name for family in families for sample in family.samples}
    return {name for name in names if name.startswith("ingot_") and not name.endswith("_created")}


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return json.loads((DEPLOY / "grafana" / "ingot.json").read_text())


def queries(dashboard: Any) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def metrics_in(expressions: list[str]) -> set[str]:
    return {name for text in expressions for name in re.findall(r"\bingot_\w+", text)}


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_parses(path: Path) -> None:
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(ENTRYPOINT[2:], id="Containerfile"),
        pytest.param(COMPOSE["services"]["ingot"]["command"], id="compose"),
        pytest.param(CONTAINER["args"], id="kubernetes"),
        pytest.param(
            re.search(r"^ExecStart=\S+ serve (.*)$", (DEPLOY / "ingot.service").read_text(), re.M)[
                1
            ].split(),
            id="systemd",
        ),
    ],
)
def test_the_server_takes_the_options(arguments: list[str]) -> None:
    help_text = CliRunner().invoke(app, ["serve", "--help"]).stdout
    known = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", help_text))
    assert {argument for argument in arguments if argument.startswith("-")} <= known
    # They also parse together, values included.
    serve = get_command(app).get_command(None, "serve")
    serve.make_context("serve", [*arguments], resilient_parsing=False)


def test_the_image_starts_the_server() -> None:
    assert ENTRYPOINT[:2] == ["ingot", "serve"]


def test_files_that_compose_mounts_exist() -> None:
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).is_file(), f"{name}: {volume}"
            elif not source.startswith("../"):
                assert source in COMPOSE["volumes"]
        for secret in service.get("secrets", ()):
            assert secret in COMPOSE["secrets"]
    build = COMPOSE["services"]["ingot"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_models_that_compose_mounts_are_not_sent_to_the_build() -> None:
    ignored = (DEPLOY.parent / ".dockerignore").read_text().split()
    mounted = [volume.split(":")[0] for volume in COMPOSE["services"]["ingot"]["volumes"]]
    assert mounted
    assert {folder.removeprefix("../") for folder in mounted} <= set(ignored)


def test_only_this_machine_reaches_the_published_ports() -> None:
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_prometheus_finds_the_server_and_has_its_key(http: TestClient) -> None:
    (job,) = documents("prometheus/prometheus.yaml")[0]["scrape_configs"]
    assert http.get(job["metrics_path"]).status_code == 200
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in COMPOSE["services"]
    assert port == ENTRYPOINT[ENTRYPOINT.index("--port") + 1]
    (secret,) = COMPOSE["services"]["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"


def test_probes_of_kubernetes_are_answered_without_a_key(http: TestClient) -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = CONTAINER[probe]["httpGet"]
        assert http.get(asked["path"]).status_code == 200
        assert str(ports[asked["port"]]) == ENTRYPOINT[ENTRYPOINT.index("--port") + 1]


def test_the_pod_is_confined() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["automountServiceAccountToken"] is False
    limits = CONTAINER["securityContext"]
    assert limits["readOnlyRootFilesystem"] is True
    assert limits["allowPrivilegeEscalation"] is False
    assert limits["capabilities"] == {"drop": ["ALL"]}
    volumes = {volume["name"] for volume in POD["volumes"]}
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == volumes
    threads = CONTAINER["args"][CONTAINER["args"].index("--threads") + 1]
    assert CONTAINER["resources"]["limits"]["cpu"] == threads


def test_parts_of_the_kubernetes_example_find_each_other() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert SERVICE["spec"]["selector"].items() <= labels.items()
    names = {port["name"] for port in CONTAINER["ports"]}
    assert {port["targetPort"] for port in SERVICE["spec"]["ports"]} <= names
    claims = {
        v["persistentVolumeClaim"]["claimName"]
        for v in POD["volumes"]
        if len(v) == 2 and "persistentVolumeClaim" in v
    }
    assert claims == {CLAIM["metadata"]["name"]}


def test_the_dashboard_asks_for_metrics_that_exist(dashboard: Any, exposed: set[str]) -> None:
    asked = metrics_in(queries(dashboard))
    assert asked
    assert asked <= exposed


def test_every_metric_is_on_the_dashboard(dashboard: Any, exposed: set[str]) -> None:
    asked = metrics_in(queries(dashboard))
    parts = {name for name in exposed if name.endswith(("_count", "_sum"))}  # of histograms
    assert exposed - parts == asked


def test_alerts_ask_for_metrics_that_exist(exposed: set[str]) -> None:
    (group,) = documents("prometheus/alerts.yaml")[0]["groups"]
    expressions = [rule["expr"] for rule in group["rules"]]
    assert metrics_in(expressions) <= exposed
    assert len(expressions) == len({rule["alert"] for rule in group["rules"]}) == 5


def test_panels_do_not_overlap_and_have_their_own_ids(dashboard: Any) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)


def test_the_dashboard_is_what_its_program_writes(dashboard: Any) -> None:
    path = DEPLOY / "grafana" / "make_dashboard.py"
    spec = importlib.util.spec_from_file_location("make_dashboard", path)
    assert spec is not None
    assert spec.loader is not None
    program: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    assert program.dashboard() == dashboard
