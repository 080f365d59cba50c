"""Templates of well-known families, written for these tests, with conversations to render.

`<family>.jinja` is a template in a family's format; `families.json` has its special
tokens and options; `conversations.json` has the inputs; `expected/<family>.json` is what
`transformers` renders (made by `make_expected.py`).
"""

import json
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NOW = datetime(2025, 3, 9, 12, 30)

# Conversations that are also rendered with a family's other options, or as they stand.
_WITH_OPTIONS = ("with_system", "tools", "documents")
_AS_THEY_STAND = ("several_turns", "reasoning")


@dataclass(frozen=True)
class Family:
    name: str
    source: str
    bos: str
    eos: str
    control: tuple[str, ...]
    options: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Case:
    family: Family
    conversation: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        options = "".join(f",{key}={value}" for key, value in self.options.items())
        end = "" if self.add_generation_prompt else ",as it stands"
        return f"{self.conversation}{options}{end}"


def _read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@cache
def families() -> tuple[Family, ...]:
    return tuple(
        Family(
            name=name,
            source=(FOLDER / f"{name}.jinja").read_text(encoding="utf-8"),
            bos=facts["bos"],
            eos=facts["eos"],
            control=tuple(facts["control"]),
            options=tuple(facts.get("extra", [{}])),
        )
        for name, facts in _read("families.json").items()
    )


def cases(family: Family) -> list[Case]:
    found = []
    for name, conversation in _read("conversations.json").items():
        found.append(Case(family, name, **conversation, options=family.options[0]))
        if name in _WITH_OPTIONS:
            found += [Case(family, name, **conversation, options=o) for o in family.options[1:]]
        if name in _AS_THEY_STAND:
            last = {"add_generation_prompt": False, "options": family.options[0]}
            found.append(Case(family, name, **conversation, **last))
    return found


def expected_path(family: Family) -> Path:
    return FOLDER / "expected" / f"{family.name}.json"


def expected(family: Family) -> dict[str, str | None]:
    """The text of each case by its name; none where the template refuses it."""
    return dict(json.loads(expected_path(family).read_text(encoding="utf-8")))
