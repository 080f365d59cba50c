"""Without Ray nothing changes, and who asks for it is told what to install."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ingot.ray
from ingot.cli import app
from ingot.errors import ConfigError

_IMPORTS = """
import sys
from ingot.cli.serve import command
from ingot.cli.batch import command
import ingot.server.process
print([name for name in sys.modules if name.split(".")[0] == "ray" or name == "ingot.ray"])
"""


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python in which Ray is not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)


def test_servers_and_batches_do_not_import_it() -> None:
    ran = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, check=True)
    assert ran.stdout == b"[]\n"


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("command", ["serve", "batch"])
@pytest.mark.parametrize("flag", [["--ray"], ["--ray-address", "127.0.0.1:1"]])
def test_the_command_line_says_what_to_install(
    command: str, flag: list[str], model: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("{}\n")
    files = [str(source), str(tmp_path / "out")] if command == "batch" else []
    ran = CliRunner().invoke(app, [command, *files, "-m", str(model), *flag])
    assert (ran.exit_code, ran.stderr) == (
        2,
        "error: Ingot on Ray needs the package ray: pip install 'ingot-llm[ray]'\n",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_ray")
def test_python_says_so_too() -> None:
    for name in ingot.ray.__all__:
        with pytest.raises(ConfigError, match=r"pip install 'ingot-llm\[ray\]'"):
            getattr(ingot.ray, name)
    with pytest.raises(AttributeError, match="nothing"):
        _ = ingot.ray.nothing  # type: ignore[attr-defined]
