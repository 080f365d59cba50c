"""What Ray reserves for a replica, and what its engines make of it; no Ray is needed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingot.cli import app
from ingot.cli.shared.ray_flags import RayFlags
from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from ingot.ray.scale import FOR_SERVERS, Scale, check_device, engine_of, fitted
from ingot.server import ServedModel, ServerOptions


def fit(scale: Scale, *engines: EngineOptions) -> list[EngineOptions]:
    models = tuple(
        ServedModel(name=str(number), path=Path("m"), engine=engine)
        for number, engine in enumerate(engines)
    )
    return [model.engine for model in fitted(ServerOptions(models=models), scale).models]


def devices(scale: Scale, *given: str | None) -> list[str]:
    engines = [EngineOptions() if each is None else EngineOptions(device=each) for each in given]
    return [engine.device for engine in fit(scale, *engines)]


def test_threads_are_what_ray_reserves() -> None:
    found = fit(Scale(cpus=4), EngineOptions(), EngineOptions(threads=7))
    assert [each.threads for each in found] == [4, 7]
    assert fit(Scale(cpus=0.5), EngineOptions())[0].threads == 1


def test_a_replica_with_a_gpu_runs_on_it() -> None:
    assert devices(Scale(gpus=1), None, None) == ["cuda", "cuda"]
    assert devices(Scale(gpus=1), "auto") == ["auto"]
    # Some models are told to; the others are not.
    assert devices(Scale(gpus=1), "cuda", "cpu") == ["cuda", "cpu"]


def test_a_replica_without_a_gpu_does_not_look_for_one() -> None:
    assert devices(Scale(), None, "auto") == ["cpu", "cpu"]
    with pytest.raises(ConfigError, match="reserves no GPU for a replica"):
        devices(Scale(), "cuda")


def test_models_that_are_found_later_are_fitted_too() -> None:
    late = ServedModel(name="late", path=Path("late"))
    options = ServerOptions(discover=lambda: [late])
    found = fitted(options, Scale(cpus=3, gpus=1)).discover
    assert found is not None
    wanted = replace(late.engine, threads=3, device="cuda")
    assert [model.engine for model in found()] == [wanted]
    assert fitted(ServerOptions(models=(late,)), Scale()).discover is None


def test_contradictions_are_refused() -> None:
    assert engine_of({"threads": 2}, Scale(gpus=1)).threads == 2
    with pytest.raises(ConfigError, match="which would be idle"):
        engine_of({"device": "cpu"}, Scale(gpus=1))
    with pytest.raises(ConfigError, match="set gpus to 1"):
        check_device("cuda", Scale())
    check_device("cuda", Scale(gpus=1))
    check_device("cpu", Scale())


@pytest.mark.parametrize("gpus", [0.5, 2, -1])
def test_a_replica_has_one_whole_gpu_or_none(gpus: float) -> None:
    with pytest.raises(ConfigError, match=f"cannot have {gpus:g} GPUs: .* one whole device"):
        Scale(gpus=gpus)


@pytest.mark.parametrize("name", FOR_SERVERS)
def test_batches_refuse_what_is_for_servers(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is for servers .*: why"):
        Scale(**{name: 5}).refuse(FOR_SERVERS, "why")
    Scale(replicas=5, cpus=5).refuse(FOR_SERVERS, "why")


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--replicas", "2"), ("--fronts", "2"), ("--replica-gpus", "1"), ("--pin", None)],
)
def test_options_of_ray_need_it(flag: str, value: str | None, model: Path) -> None:
    given = [flag] if value is None else [flag, value]
    ran = CliRunner().invoke(app, ["serve", "-m", str(model), *given])
    assert (ran.exit_code, ran.stderr) == (2, f"error: {flag} needs --ray\n")


def test_the_address_may_follow_the_flag(model: Path) -> None:
    assert RayFlags(ray=True).at("head:6379") == RayFlags(ray=True, ray_address="head:6379")
    assert RayFlags(ray=True).at(None) == RayFlags(ray=True)
    with pytest.raises(ConfigError, match="given twice"):
        RayFlags(ray=True, ray_address="a").at("b")
    ran = CliRunner().invoke(app, ["serve", str(model)])
    assert ran.exit_code == 2
    assert "a model is given with -m MODEL" in ran.stderr


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        ("serve", ["--replica-gpus", "0.5"], "cannot have 0.5 GPUs"),
        ("serve", ["--replica-gpus", "1", "--device", "cpu"], "which would be idle"),
        ("serve", ["--device", "cuda"], "--replica-gpus 1"),
        ("batch", ["--max-replicas", "3"], "max_replicas is for servers"),
        ("batch", ["--target-tokens", "3"], "target_tokens is for servers"),
        ("batch", ["--target-requests", "3"], "target_requests is for servers"),
        ("batch", ["--fronts", "3"], "fronts is for servers"),
    ],
)
def test_the_command_line_refuses(
    command: str, flags: list[str], words: str, model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="Ray is not here: pip install 'ingot-llm[ray]'")
    source = tmp_path / "in.jsonl"
    source.write_text("{}\n")
    files: list[Any] = [source, tmp_path / "out"] if command == "batch" else []
    given = [command, *map(str, files), "-m", str(model), "--ray", *flags]
    ran = CliRunner().invoke(app, given)
    assert ran.exit_code == 2
    assert words in ran.stderr
    assert not (tmp_path / "out").exists()
