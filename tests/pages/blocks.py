"""The blocks of code on the pages of the documentation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str  # relative to the repository
    line: int
    language: str  # "" for shell and diagrams
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """All of them, in order."""
    text = page.read_text()
    for found in _FENCED.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(str(page.relative_to(ROOT)), line, found[2], found[3])


def python_blocks(page: str) -> list[Block]:
    """Those with Python code."""
    return [block for block in blocks(ROOT / page) if block.language == "python"]
