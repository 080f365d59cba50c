"""`ingot inspect --architectures`: what can be run, for a person and for a program."""

import json
from pathlib import Path

from command_runs import Run

from ingot.models import architectures, described


def test_a_line_for_each(run: Run) -> None:
    ran = run("inspect", "--architectures")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == architectures()
    assert " ".join(ran.out.split()).count("RoPE") == " ".join(
        map(described, architectures())
    ).count("RoPE")
    assert max(map(len, lines)) <= 100


def test_for_programs(run: Run) -> None:
    ran = run("inspect", "--architectures", "--json")
    assert (ran.status, ran.err) == (0, "")
    assert json.loads(ran.out) == [
        {"architecture": name, "described": described(name)} for name in architectures()
    ]


def test_no_file_is_read(run: Run, tiny: Path) -> None:
    ran = run("inspect", "--architectures", tiny)
    assert (ran.status, ran.out) == (2, "")
    assert "--architectures takes no FILE" in ran.err
