"""Check the built site: every link and image inside it leads to a file and an anchor that exist.

    python docs/site/check_links.py build/site

mkdocs checks the links in Markdown; this also covers the pages made from docstrings and what the
theme adds. Links to other sites are not followed, because a build must not depend on them.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag links to, and its anchor."""
        found = dict(attrs)
        if anchor := found.get("id") or (found.get("name") if tag == "a" else None):
            self.anchors.add(anchor)
        link = found.get("href" if tag in ("a", "link") else "src")
        if link and tag in ("a", "link", "img", "script"):
            self.links.add(link)


def broken_links(site: Path) -> list[str]:
    """One line for every link that leads nowhere."""
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = _Page()
        pages[path].feed(path.read_text())
    broken = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue  # 404.html is shown for any address, so its links have no base
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {link}: no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f"{path.relative_to(site)}: {link}: no such anchor")
    if not pages:
        broken.append(f"{site}: no pages")
    return broken


if __name__ == "__main__":
    found = broken_links(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "all links lead somewhere")
    sys.exit(bool(found))
