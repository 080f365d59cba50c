"""What `mkdocs` does for this project in addition: files outside docs/ become pages.

CONTRIBUTING.md, CHANGELOG.md and SECURITY.md become pages of `project/`. Other files of the
repository that pages link to (a systemd unit, a script) become pages that show them. A link to a
folder becomes plain text, because the site has no folders.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PROJECT = "project"
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_LANGUAGES = {".service": "ini", ".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml"}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that come from outside docs/."""
    for name in PAGES:
        source = f"{PROJECT}/{name}"
        files.append(File.generated(config, source, content=(ROOT / name).read_text()))
    written = [file for file in files if file.src_uri.endswith(".md")]
    for target in sorted({link for file in written for link in _linked_files(file)}):
        files.append(File.generated(config, _page_of(target), content=_shown(target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to where the pages of files outside docs/ are."""

    def replaced(match: re.Match[str]) -> str:
        text, link, anchor = match[1], match[2], match[3] or ""
        target = _resolved(page.file.src_uri, link)
        if target is None:
            return match[0]
        if (ROOT / target).is_dir():
            return text
        return f"[{text}]({_relative(page.file.src_uri, _page_of(target))}{anchor})"

    return _LINK.sub(replaced, markdown)


def _linked_files(file: File) -> list[str]:
    """Files that a page links to and that are no pages themselves."""
    links = (_resolved(file.src_uri, match[2]) for match in _LINK.finditer(file.content_string))
    return [
        link
        for link in links
        if link is not None
        and link not in PAGES
        and not (link.startswith("docs/") and link.endswith((".md", ".svg")))
        and (ROOT / link).is_file()
    ]


def _resolved(page: str, link: str) -> str | None:
    """The path in the repository that a link of a page leads to; None for other links."""
    if "://" in link or link.startswith(("/", "mailto:")):
        return None
    home = ROOT if page.startswith(f"{PROJECT}/") else (ROOT / "docs" / page).parent
    target = (home / link).resolve()
    if not target.is_relative_to(ROOT) or not target.exists():
        return None  # mkdocs says what is wrong with it
    return target.relative_to(ROOT).as_posix()


def _page_of(target: str) -> str:
    """Where the site has a file of the repository."""
    if target in PAGES:
        return f"{PROJECT}/{target}"
    if target.startswith("docs/") and target.endswith((".md", ".svg")):
        return target.removeprefix("docs/")
    return f"{PROJECT}/files/{target}.md"


def _relative(page: str, target: str) -> str:
    """A link from one page to another."""
    start, end = list(PurePosixPath(page).parent.parts), list(PurePosixPath(target).parts)
    while start and end and start[0] == end[0]:
        start, end = start[1:], end[1:]
    return "/".join([".."] * len(start) + end)


def _shown(target: str) -> str:
    """A page that shows a file."""
    path = ROOT / target
    language = _LANGUAGES.get(path.suffix, "dockerfile" if path.suffix == "" else "text")
    return f"# {target}\n\n~~~~{language}\n{path.read_text()}\n~~~~\n"
