"""A copy of the sources that is changed as recipes of CONTRIBUTING.md say.

A change can touch only files that its recipe names: a name between backquotes, either of a file or
(for new files) of a folder. What was changed runs in a process with the copy in front of its path.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from ingot import _native

ROOT = Path(__file__).parents[2]


def recipe(title: str) -> str:
    """Read the section of CONTRIBUTING.md under a heading."""
    _, _, rest = (ROOT / "CONTRIBUTING.md").read_text().partition(f"\n## {title}\n")
    assert rest, f"CONTRIBUTING.md has no section {title!r}"
    return rest.partition("\n## ")[0]


class Change:
    """What one recipe changes in a copy."""

    def __init__(self, folder: Path, title: str, family: str) -> None:
        self._folder = folder
        self._named = {
            name.replace("<family>", family) for name in re.findall(r"`([^`\s]+)`", recipe(title))
        }
        self.files: set[str] = set()

    def add(self, path: str, text: str) -> None:
        """Write a new file, in a folder that the recipe names."""
        place = self._folder / path
        assert f"{Path(path).parent.as_posix()}/" in self._named, f"the recipe names no {path}"
        assert not place.exists()
        place.write_text(text)
        self.files.add(path)

    def insert(self, path: str, before: str, text: str) -> None:
        """Put text before the first place that begins with `before`, in a file that is named."""
        place = self._folder / path
        assert path in self._named, f"the recipe does not name {path}"
        head, found, rest = place.read_text().partition(before)
        assert found, f"{path} does not hold {before!r}"
        place.write_text(head + text + found + rest)
        self.files.add(path)


class ChangedTree:
    """A copy of src/, of native/ (for a build) and of the cases of operations, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        for part in ("src", "native", "tests/ops"):
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        for file in ("CMakeLists.txt", "pyproject.toml", "README.md"):
            shutil.copy(ROOT / file, folder)

    def follow(self, title: str, family: str = "") -> Change:
        """Begin a change by a recipe, of a family of operations if it is about them."""
        return Change(self.folder, title, family)

    def use_native(self) -> None:
        """Take the native core that this process uses, which the change leaves as it is."""
        shutil.copy(_native.__file__, self.folder / "src" / "ingot")

    def build_native(self) -> None:
        """Compile the native core for the scalar instruction set."""
        build = self.folder / "build"
        options = ["-DINGOT_SCALAR_ONLY=ON", f"-DPython_EXECUTABLE={sys.executable}"]
        tools = {**os.environ, "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"}
        for command in (
            ["cmake", "-S", str(self.folder), "-B", str(build), "-G", "Ninja", *options],
            ["cmake", "--build", str(build), "--target", "_native"],
        ):
            made = subprocess.run(command, env=tools, capture_output=True, text=True, check=False)
            assert made.returncode == 0, made.stdout[-4000:] + made.stderr[-4000:]
        (library,) = build.glob("_native*.so")
        shutil.copy(library, self.folder / "src" / "ingot")

    def run(self, script: str, *arguments: object) -> None:
        """Run a script on the copy; what it asserts holds, or this fails with its words."""
        # -S: without the editable install, which would put the sources themselves in front.
        own = [self.folder / "src", self.folder / "tests"]
        path = [*own, ROOT / "tests", sysconfig.get_path("platlib")]
        done = subprocess.run(
            [sys.executable, "-S", "-c", script, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
