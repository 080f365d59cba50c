"""The endpoint that reads PDF files for the page."""

import base64
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pdf import pdf_with

from ingot.server import page
from ingot.server.errors import ApiError


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(page.router())
    with TestClient(app) as client:
        yield client


def send(client: TestClient, content: bytes) -> dict[str, object]:
    data = base64.b64encode(content).decode()
    found: dict[str, object] = client.post("/api/pdf-text", json={"data": data}).json()
    return found


def test_the_text_of_a_pdf(client: TestClient) -> None:
    pytest.importorskip("pypdf")
    assert send(client, pdf_with("Hello, page")) == {"text": "Hello, page", "pages": 1}


@pytest.mark.parametrize("content", [b"", b"no pdf", pdf_with("cut")[:200]])
def test_a_damaged_pdf_is_refused(client: TestClient, content: bytes) -> None:
    pytest.importorskip("pypdf")
    with pytest.raises(ApiError, match="the PDF could not be read"):
        send(client, content)


def test_a_pdf_that_takes_too_long_is_given_up(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pypdf")
    monkeypatch.setattr("ingot.server.page.pdf_text._SECONDS", 0.0)
    with pytest.raises(ApiError, match="within 0 seconds"):
        send(client, pdf_with("slow"))


def test_data_that_is_not_base64_is_refused(client: TestClient) -> None:
    pytest.importorskip("pypdf")
    with pytest.raises(ApiError, match="not base64"):
        client.post("/api/pdf-text", json={"data": "%%%"})


def test_a_server_without_pypdf_says_what_to_do(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ApiError, match="pip install ingot-llm"):
        send(client, pdf_with("Hello"))
