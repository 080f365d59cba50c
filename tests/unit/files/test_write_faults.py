"""Every call to the disk of everything that writes fails once: the state is old or new.

Then the same with a process that is killed before each call.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from writers import WRITERS

from faulty_os import PLACES, Fault, FaultyOs
from ingot.errors import IngotError

OLD, NEW = 1, 2
PATIENCE = 300


def drafts(folder: Path) -> list[Path]:
    return list(folder.rglob(".ingot-draft-*"))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.BROKEN, Fault.SHORT])
@pytest.mark.parametrize("before", [None, OLD])
def test_the_state_is_old_or_new(
    name: str, fault: Fault, before: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = WRITERS[name]
    failed, at, happened = 0, 0, True
    while happened:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        for place in PLACES:
            monkeypatch.setattr(place, FaultyOs(fault, 0))
        if before is not None:
            writer.write(folder, before)
        faulty = FaultyOs(fault, at)
        for place in PLACES:
            monkeypatch.setattr(place, faulty)
        error = None
        try:
            writer.write(folder, NEW)
        except (IngotError, OSError) as raised:
            error = raised
        monkeypatch.undo()
        happened = faulty.happened
        found = writer.read(folder)
        assert found in ({NEW} if error is None else {before, NEW, *writer.others}), at
        assert drafts(folder) == [], at
        if error is not None:
            failed += 1
            assert str(error).endswith(os.strerror(cast("int", fault.value)))
            assert isinstance(error, IngotError) or name == "the history of chats"
    assert at > 5
    assert failed == 0 if fault is Fault.SHORT else failed >= 5


# A process of one thread, which forks a child for every call that is its last.
KILLED = """
import os, sys
from pathlib import Path
from faulty_os import Fault, FaultyOs
from ingot import files
from ingot.machine import posix
from writers import WRITERS

for name, writer in WRITERS.items():
    at, killed = 0, True
    while killed:
        at += 1
        folder = Path(sys.argv[1]) / name.replace(" ", "-") / str(at)
        folder.mkdir(parents=True)
        files.os = posix.os = FaultyOs(Fault.KILL, 0)
        writer.write(folder, 1)
        if (child := os.fork()) == 0:
            files.os = posix.os = FaultyOs(Fault.KILL, at)
            writer.write(folder, 2)
            os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
        assert writer.read(folder) in ({1, 2, *writer.others} if killed else {2}), (name, at)
        left = list(folder.glob(".ingot-draft-*"))
        writer.write(folder, 2)
        assert not list(folder.glob(".ingot-draft-*")), (name, at)
        print(name, at, killed, len(left), sep="|")
"""


def test_a_killed_writer_leaves_what_the_next_one_sweeps(tmp_path: Path) -> None:
    here = Path(__file__).parent
    code = f"import sys; sys.path[:0] = {[str(here), str(here.parent.parent)]!r}\n{KILLED}"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines()]
    for name in WRITERS:
        kills = [row for row in rows if row[0] == name]
        assert len(kills) > 5
        assert kills[-1][2] == "False"
        assert any(int(row[3]) for row in kills), f"{name} left nothing: it was not killed"
