"""Only ingot.machine has branches for operating systems, and the few files that it names."""

import ast
import re
from pathlib import Path

import pytest

import ingot.machine

SOURCE = Path(ingot.machine.__file__).parents[1]
FILES = [path for path in SOURCE.rglob("*.py") if path.parent.name != "machine"]
ASKED = {
    ("sys", "platform"),
    ("os", "name"),
    ("os", "uname"),
    ("platform", "system"),
    ("platform", "machine"),
}
SYSTEMS = {"os", "signal", "socket"}  # modules that lack names on some systems
FOLDERS = re.compile(r"/?(proc|sys)/")


def branches(code: str) -> list[str]:
    """Where a module asks which system this is, or reads a folder that only Linux has."""
    found = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(value=ast.Name(module), attr=name) if (module, name) in ASKED:
                found.append(f"{module}.{name}")
            case ast.ImportFrom(module=str(module), names=names):
                found += [f"{module}.{x.name}" for x in names if (module, x.name) in ASKED]
            case ast.Call(ast.Name("hasattr" | "getattr"), [ast.Name(module), name, *_]):
                if module in SYSTEMS:
                    found.append(f"{module} has {ast.unparse(name)}")
            case ast.Constant(str(text)) if FOLDERS.match(text):
                found.append(text)
    return found


def test_the_files_with_branches_are_those_that_ingot_machine_names() -> None:
    assert len(FILES) > 200
    found = {
        path.relative_to(SOURCE).as_posix(): these
        for path in FILES
        if (these := branches(path.read_text("utf-8")))
    }
    named = set(re.findall(r"`([\w/]+\.py)`", ingot.machine.__doc__ or ""))
    assert set(found) == named, found


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nif sys.platform == 'win32': pass",
        "import os\nwindows = os.name == 'nt'",
        "from sys import platform",
        "import platform\nplatform.system()",
        "import os\ncan = hasattr(os, 'fork')",
        "from pathlib import Path\nPath('/proc/meminfo').read_text()",
        "text = root / 'sys/devices/system/node'",
        "text = f'/proc/{process}/status'",
    ],
)
def test_a_branch_is_found(code: str) -> None:
    assert branches(code)


@pytest.mark.parametrize(
    "code",
    ["import sys\nsys.path", "import os\nos.getpid()", "path = '/props'", "'see /proc/self'"],
)
def test_other_code_has_none(code: str) -> None:
    assert not branches(code)
