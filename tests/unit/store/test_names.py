"""What names mean, and which are refused."""

from pathlib import Path

import pytest

from ingot.errors import StoreError
from ingot.store.names import (
    DefaultName,
    FileName,
    HubName,
    ModelName,
    OllamaName,
    WebName,
    is_safe_path,
    parse_name,
    shown_url,
)

SHA = "ab" * 32


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("default", DefaultName()),
        ("hf:Qwen/Qwen3-4B-GGUF", HubName("Qwen/Qwen3-4B-GGUF")),
        ("hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", HubName("Qwen/Qwen3-4B-GGUF", "Q4_K_M")),
        ("hf:a/b/c.gguf", HubName("a/b", file="c.gguf")),
        ("hf:a/b/Q8_0/c d.gguf", HubName("a/b", file="Q8_0/c d.gguf")),
        ("Qwen/Qwen3-4B-GGUF", HubName("Qwen/Qwen3-4B-GGUF", plain=True)),
        ("Qwen/Qwen3-4B-GGUF:q8_0", HubName("Qwen/Qwen3-4B-GGUF", "q8_0", plain=True)),
        ("https://example.com/a.gguf", WebName("https://example.com/a.gguf")),
        ("https://example.com/a?b=c", WebName("https://example.com/a?b=c")),
        (f"https://e.com/a.gguf#sha256={SHA}", WebName("https://e.com/a.gguf", SHA)),
        ("ollama:llama3.2", OllamaName("registry.ollama.ai", "library", "llama3.2", "latest")),
        ("ollama:me/mine:7b", OllamaName("registry.ollama.ai", "me", "mine", "7b")),
        ("ollama:h.com:5000/me/mine", OllamaName("h.com:5000", "me", "mine", "latest")),
        ("model.gguf", FileName("model.gguf")),
        ("folder/model.gguf", FileName("folder/model.gguf")),
        ("./owner/repo", FileName("./owner/repo")),
        ("/owner/repo", FileName("/owner/repo")),
        ("a/b/c", FileName("a/b/c")),
        ("~/owner", FileName("~/owner")),
        ("a\0b/c", FileName("a\0b/c")),
        ("", FileName("")),
    ],
)
def test_names(text: str, name: ModelName) -> None:
    assert parse_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "hf:",
        "hf:owner",
        "hf:../etc",
        "hf:a/..",
        "hf:a/b:",
        "hf:a/b:Q4/x",
        "hf:a/b/../../c.gguf",
        "hf:a/b//c.gguf",
        "hf:a/b/c\\d.gguf",
        "hf:a/b/\x1b.gguf",
        "hf:a/b/readme.md",
        "http://example.com/a.gguf",
        "https://user:password@example.com/a.gguf",
        "https:///a.gguf",
        "https://[::1/a.gguf",
        "https://example.com:99999/a.gguf",
        "https://example.com/a b.gguf",
        "https://example.com/\x00",
        "https://example.com/a.gguf#sha256=12",
        "https://example.com/a.gguf#md5=12",
        "ollama:",
        "ollama:a b",
        "ollama:../../x",
        "ollama:a/b/c/d",
        "ollama:..:x",
        "ollama:x:..",
        "ollama:-host/a/b",
    ],
)
def test_malformed_names(text: str) -> None:
    with pytest.raises(StoreError) as caught:
        parse_name(text)
    assert "password" not in str(caught.value) or "user name or password" in str(caught.value)


def test_an_existing_path_is_never_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "repo").mkdir(parents=True)
    assert parse_name("owner/repo") == FileName("owner/repo")
    assert parse_name("owner/other") == HubName("owner/other", plain=True)


@pytest.mark.parametrize(
    "text", ["hf:a/b", "hf:a/b:Q8_0", "hf:a/b/c/d.gguf", "ollama:x:y", "ollama:h:1/library/x:y"]
)
def test_a_name_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_name(text)) == text


@pytest.mark.parametrize(
    "path", ["", "/a", "a//b", "../a", "a/..", "a/./b", "a\\b", "C:b", "a/C:b", "a\nb", "x" * 600]
)
def test_unsafe_paths(path: str) -> None:
    assert not is_safe_path(path)
    assert is_safe_path("a/b-c.gguf")


def test_urls_are_shown_without_secrets() -> None:
    assert shown_url("https://u:p@h.com:1/a/b?c=d#e") == "https://h.com:1/a/b"
