"""The systemd unit and the container: what they forbid, and that the server runs under them."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from ports import quiet_port
from serving import PATIENCE

from tiny_llama import write_tiny_llama

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy" / "ingot.service").read_text()
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text()
COMPOSE = (ROOT / "deploy" / "compose.yaml").read_text()
STRANGER = 61735  # a user without a name or a home, as a container's is

# What MemoryDenyWriteExecute asks of the kernel; one that is too old for it says no.
CONFINED = """
import ctypes, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)
from ingot.cli import main
main()
"""


def unprivileged() -> list[str]:
    """What starts a program as a stranger who may read everything and write nothing."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    rights = "-all,+dac_read_search"  # the interpreter may lie in root's own folder
    user = [f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--no-new-privs"]
    return ["setpriv", *user, f"--inh-caps={rights}", f"--ambient-caps={rights}"]


def post(url: str, body: dict[str, object]) -> dict[str, object]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user finds, which pytest's own are not."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_it_runs_without_privileges_a_home_or_a_place_to_write(shared_folder: Path) -> None:
    model = write_tiny_llama(shared_folder / "tiny.gguf")
    slots = shared_folder / "slots"
    slots.mkdir()
    slots.chmod(0o777)
    port = quiet_port()
    command = [*unprivileged(), sys.executable, "-B", "-c", CONFINED, "serve", "-m", model]
    command += ["--port", str(port), "--slot-save-path", slots]
    process = subprocess.Popen(command, env={}, cwd="/", stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = []
        while not (said and said[-1].startswith("serving tiny")):
            said.append(process.stderr.readline())
            assert said[-1], "".join(said)
        url = f"http://127.0.0.1:{port}"
        text = {"prompt": "a" * 64, "n_predict": 8, "grammar": "root ::= [a-z]+", "id_slot": 0}
        assert re.fullmatch("[a-z]{1,8}", str(post(f"{url}/completion", text)["content"]))
        saved = post(f"{url}/slots/0?action=save", {"filename": "one"})
        assert saved["n_saved"] == 64
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_unit_confines() -> None:
    set_to = dict(re.findall(r"^(\w+)=(.*)$", UNIT, re.M))
    for name in (
        "DynamicUser",
        "NoNewPrivileges",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectHome",
        "MemoryDenyWriteExecute",
        "RestrictNamespaces",
        "RestrictSUIDSGID",
    ):
        assert set_to[name] == "yes"
    assert set_to["ProtectSystem"] == "strict"
    assert set_to["CapabilityBoundingSet"] == ""
    assert "SystemCallFilter=@system-service" in UNIT
    assert {"MemoryMax", "TasksMax", "LimitNOFILE", "LimitMEMLOCK"} <= set_to.keys()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "ingot.service"
    unit.write_text(UNIT.replace("/opt/ingot/bin/ingot", sys.executable))
    for command in (["verify"], ["security", "--offline=true", "--threshold=20", "--no-pager"]):
        done = subprocess.run(
            ["systemd-analyze", *command, unit], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "ingot.service:" not in done.stderr


def test_the_container_confines() -> None:
    assert re.search(r"^USER \d+:\d+$", CONTAINER, re.M)
    assert "HEALTHCHECK" in CONTAINER
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for named in re.findall(r"EXTRAS=([\w,]+)", CONTAINER):
        assert "server" in named.split(",")
        assert set(named.split(",")) <= extras["optional-dependencies"].keys()
    for line in (
        "read_only: true",
        "cap_drop: [ALL]",
        'security_opt: ["no-new-privileges:true"]',
        "mem_limit: 16g",
        "pids_limit: 512",
    ):
        assert line in COMPOSE
