"""Install a wheel as a user without a compiler does, and run it.

    try_wheel.py WHEEL

The environment is new, and while Ingot is installed and runs, no program can be found on the PATH.
Packages that are only there as sources cannot be built then, so they count as a failure.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_BYTES = 15_000_000
PROMPT = ["run", "--temperature", "0", "-n", "8", "Name three colours."]


def main() -> None:
    """Check the size, install, run."""
    wheel = Path(sys.argv[1]).resolve()
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"{wheel.name} has {size:,} bytes; {MOST_BYTES:,} are allowed")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        programs = Path(folder) / "bin"
        install = [programs / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        bare = os.environ | {"PATH": str(programs), "CXX": "none", "CC": "none"}
        bare.pop("PYTHONPATH", None)
        for command in ([*install, wheel], [programs / "ingot", "info"]):
            subprocess.run(command, env=bare, cwd=folder, check=True)
        said = subprocess.run(
            [programs / "ingot", *PROMPT],
            env=bare,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if said.returncode != 0 or not said.stdout.strip():
            sys.exit(f"`ingot run` failed: {said.stderr}")
        print(f"{wheel.name}: {size:,} bytes, says {said.stdout.strip()!r}")


if __name__ == "__main__":
    main()
