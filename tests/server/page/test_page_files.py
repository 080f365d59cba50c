"""The page's files: all there, with the right headers, and none that looks elsewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ingot.server import page

STATIC = Path(page.__file__).parent / "static"
NAMES = sorted(str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.is_file())
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Names of formats look like addresses; nothing is loaded from them.
FORMATS = {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(page.router())
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_served(client: TestClient, name: str) -> None:
    response = client.get(f"/page/{name}")
    assert response.status_code == 200
    assert response.content == (STATIC / name).read_bytes()
    assert response.headers["Content-Type"] == TYPES[Path(name).suffix]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-cache"


def test_the_page_is_at_the_root(client: TestClient) -> None:
    response = client.get("/")
    assert response.content == (STATIC / "index.html").read_bytes()
    policy = dict(
        part.strip().split(" ", 1)
        for part in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"


def test_a_file_that_is_known_is_not_sent_again(client: TestClient) -> None:
    tag = client.get("/page/js/main.js").headers["ETag"]
    again = client.get("/page/js/main.js", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/page/js/dom.js", headers={"If-None-Match": tag})
    assert other.status_code == 200


@pytest.mark.parametrize("name", ["nothing.js", "../__init__.py", "%2e%2e/__init__.py", "js", ""])
def test_nothing_else_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/page/{name}").status_code == 404


@pytest.mark.parametrize("name", NAMES)
def test_no_file_refers_to_an_outside_address(name: str) -> None:
    text = (STATIC / name).read_text()
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[\w./-]*", text)) - FORMATS
    assert not addresses


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
def test_scripts_import_files_that_exist(name: str) -> None:
    text = (STATIC / name).read_text()
    for target in re.findall(r'from "([^"]+)"', text):
        assert ((STATIC / name).parent / target).resolve().is_relative_to(STATIC)
        assert ((STATIC / name).parent / target).is_file(), target


def test_the_markup_holds_no_script_and_names_files_that_exist() -> None:
    text = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)[^>]*>", text)
    assert not re.search(r"\son\w+=|<style|\sstyle=", text)
    for target in re.findall(r'(?:src|href)="(page/[^"]+)"', text):
        assert (STATIC / target.removeprefix("page/")).is_file(), target


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
def test_no_script_turns_text_into_markup(name: str) -> None:
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|srcdoc"
    assert not re.search(sinks, (STATIC / name).read_text())
