"""Install a wheel as a user without a compiler does, and run it.

    try_wheel.py WHEEL

The environment is new, and while Ingot is installed and runs, no program can be found on the PATH.
As root on Linux, compilers and headers are hidden, too: empty folders are mounted over them, for
this process alone. pip takes only wheels, so packages that are only there as sources are a failure.

Prints how many megabytes a user downloads besides the model, and how many seconds it takes to
download and install them and from the command to the first token. Fails if that is more than a
minute on a slow line; what this machine's own line takes does not count.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

MOST_BYTES = 15_000_000
SLOW_LINE = 20e6  # bits per second
MOST_SECONDS = 60.0  # from nothing to the first token on such a line, without the model
PROMPT = ["run", "--temperature", "0", "-n", "8", "Name three colours."]
HIDDEN = "--hidden"  # we run in a namespace for mounts of our own
NAMESPACE = ["unshare", "--mount"]
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++")
PLACES = ("include", "local/include", "lib/gcc", "libexec/gcc", "lib/llvm*")  # under /usr


def can_hide() -> bool:
    """Whether this process may mount something that no other process sees."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which(NAMESPACE[0]):
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


def hide_compilers() -> None:
    """Mount empty folders over compilers and headers; nothing must compile then."""
    folders = [folder for place in PLACES for folder in Path("/usr").glob(place)]
    folders.append(Path(sysconfig.get_path("include")))
    for folder in filter(Path.is_dir, folders):
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    for program in filter(None, map(shutil.which, COMPILERS)):
        command = [program, "-x", "c", "-c", "-o", os.devnull, "-"]
        if subprocess.run(command, input=b"", capture_output=True, check=False).returncode == 0:
            sys.exit(f"{program} still compiles")


def seconds_on_a_slow_line(downloaded: int, installing: float, starting: float) -> float:
    """From nothing to the first token, if this many bytes come over a slow line."""
    return downloaded * 8 / SLOW_LINE + installing + starting


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install and run it in a new environment."""
    programs, packages = folder / "bin", folder / "packages"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    bare = os.environ | {"PATH": str(programs), "CXX": "none", "CC": "none"}
    bare.pop("PYTHONPATH", None)

    def seconds(*command: object) -> float:
        began = time.perf_counter()
        subprocess.run([str(part) for part in command], env=bare, cwd=folder, check=True)
        return time.perf_counter() - began

    pip = [programs / "python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
    only = ["--only-binary", ":all:"]
    fetching = seconds(*pip, "download", "--no-cache-dir", *only, "--dest", packages, wheel)
    offline = ["--no-index", "--find-links", packages]
    installing = seconds(*pip, "install", *only, *offline, wheel)
    seconds(programs / "ingot", "info")
    seconds(programs / "ingot", "pull", "default")

    began = time.perf_counter()
    with subprocess.Popen(
        [programs / "ingot", *PROMPT],
        env=bare,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        first = running.stdout.read(1)
        starting = time.perf_counter() - began
        rest, notices = running.communicate()
    said = (first + rest).decode().strip()
    if running.returncode != 0 or not said:
        sys.exit(f"`ingot run` failed: {notices.decode()}")

    fetched = [package.stat().st_size for package in packages.iterdir()]
    in_all = seconds_on_a_slow_line(sum(fetched), installing, starting)
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, says {said!r}")
    print(
        f"{len(fetched)} packages, {sum(fetched) / 1e6:.1f} MB: {fetching:.1f} s to download, "
        f"{installing:.1f} s to install, {starting:.1f} s to the first token; "
        f"at {SLOW_LINE / 1e6:.0f} Mbit/s {in_all:.0f} s in all"
    )
    if in_all > MOST_SECONDS:
        sys.exit(f"{wheel.name}: {MOST_SECONDS:.0f} s are allowed")


def main() -> None:
    """Check the size, install, run."""
    wheel = Path(sys.argv[1]).resolve()
    if (size := wheel.stat().st_size) > MOST_BYTES:
        sys.exit(f"{wheel.name} has {size:,} bytes; {MOST_BYTES:,} are allowed")
    if HIDDEN in sys.argv:
        hide_compilers()
    elif can_hide():
        again = [*NAMESPACE, sys.executable, __file__, wheel, HIDDEN]
        sys.exit(subprocess.run(again, check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder))


if __name__ == "__main__":
    main()
