"""Build a source distribution as on a machine without a network.

    try_sdist.py SDIST

What it is built with, in the exact versions that `pyproject.toml` and `requirements.lock` name, is
fetched first. The build finds nothing else. Only the plain kernels are built, and not optimized.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
QUICK = ["INGOT_SCALAR_ONLY", "INGOT_UNOPTIMIZED"]


def main() -> None:
    """Fetch, build, look for the native module."""
    source = Path(sys.argv[1]).resolve()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    tools = [*project["build-system"]["requires"], "cmake", "ninja"]
    settings = [f"--config-settings=cmake.define.{name}=ON" for name in QUICK]
    with tempfile.TemporaryDirectory() as folder:
        lock = ["--constraint", ROOT / "requirements.lock"]
        subprocess.run([*PIP, "download", "--dest", folder, *lock, *tools], check=True)
        offline = {name: value for name, value in os.environ.items() if "PIP_" not in name}
        offline |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folder, "PIP_CONFIG_FILE": os.devnull}
        build = [*PIP, "wheel", "--no-deps", "--wheel-dir", folder, *settings, source]
        subprocess.run(build, env=offline, cwd=folder, check=True)
        (wheel,) = Path(folder).glob("ingot_llm-*.whl")
        names = ZipFile(wheel).namelist()
        if not any(name.startswith("ingot/_native.") and name.endswith(".so") for name in names):
            sys.exit(f"{source.name}: the wheel built from it has no native module")
        print(f"{source.name}: builds offline")


if __name__ == "__main__":
    main()
