"""Models that LM Studio and llama.cpp have downloaded, by the names of the hub."""

import json
from pathlib import Path

import pytest
from model_server import COMMIT, HubAndOllama

from ingot import store
from ingot.config import config
from ingot.errors import ModelNotFoundError, StoreError

MODEL = b"GGUF" + bytes(50_000)
SPLIT = ("big-Q6_K-00001-of-00002.gguf", "big-Q6_K-00002-of-00002.gguf")
STUDIO, LLAMA = ".lmstudio/models/", ".cache/llama.cpp/"
HUB = "models--Owner--Tiny-GGUF/snapshots/" + COMMIT + "/"
# A file of Owner/Tiny-GGUF in the layouts of the tools.
LAYOUTS = {
    "LM Studio": STUDIO + "Owner/Tiny-GGUF/",
    "older LM Studio": ".cache/lm-studio/models/Owner/Tiny-GGUF/",
    "llama.cpp": LLAMA + "Owner_Tiny-GGUF_",
    "newer llama.cpp": LLAMA + HUB,
}


def put(home: Path, *paths: str, size: int = len(MODEL)) -> Path:
    """Write files below the home directory; the path of the first."""
    for path in paths:
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(MODEL[:size])
    return home / paths[0]


def listed() -> list[tuple[str, int, str]]:
    return [(model.name, model.size, model.source) for model in store.list_models()]


@pytest.mark.parametrize("tool", LAYOUTS)
def test_a_model_is_found_by_the_name_of_its_repository(tool: str, home: Path) -> None:
    base = LAYOUTS[tool]
    eight = put(home, base + "tiny-Q8_0.gguf", base + "mmproj-F16.gguf")
    put(home, base + "tiny-Q4_K_M.gguf", size=100)
    first = put(home, *(base + part for part in SPLIT), size=200)
    for tail, path in {
        "": eight,  # the largest that fits
        ":Q8_0": eight,
        ":q6_k": first,
        "/tiny-Q8_0.gguf": eight,
        f"/{SPLIT[0]}": first,
        f"/{SPLIT[1]}": first,
        ":Q5_0": None,
        "/other.gguf": None,
    }.items():
        assert store.find(f"hf:Owner/Tiny-GGUF{tail}") == path, tail
    assert store.resolve("Owner/Tiny-GGUF:Q8_0") == eight
    for other in ("hf:Owner/Tiny", "hf:Owner/Tiny-GG", "hf:wner/Tiny-GGUF", "hf:Owner/Other-GGUF"):
        assert store.find(other) is None, other
    source = tool.removeprefix("older ").removeprefix("newer ")
    assert sorted(listed()) == [
        (f"hf:Owner/Tiny-GGUF/{SPLIT[0]}", 400, source),
        ("hf:Owner/Tiny-GGUF/tiny-Q4_K_M.gguf", 100, source),
        ("hf:Owner/Tiny-GGUF/tiny-Q8_0.gguf", len(MODEL), source),
    ]
    for model in store.list_models():
        assert store.find(model.name) == model.path


@pytest.mark.parametrize("tool", LAYOUTS)
@pytest.mark.parametrize(
    "partial",
    [
        "tiny-Q8_0.gguf.part",
        "downloading_tiny-Q8_0.gguf.part",
        "tiny-Q8_0.gguf.downloadInProgress",
        "tiny-Q8_0.gguf.incomplete",
        SPLIT[0],
        SPLIT[1],
        "mmproj-F16.gguf",
    ],
)
def test_part_of_a_model_is_not_taken_for_whole(partial: str, tool: str, home: Path) -> None:
    put(home, LAYOUTS[tool] + partial, LAYOUTS[tool] + f"{SPLIT[1]}.part")
    for tail in ("", ":Q8_0", ":Q6_K", f"/{partial}" if partial.endswith("gguf") else ""):
        assert store.find(f"hf:Owner/Tiny-GGUF{tail}") is None
    assert listed() == []


def test_a_file_in_a_folder_of_the_repository(home: Path) -> None:
    studio = put(home, STUDIO + "a/b/Q4_K_M/x-Q4_K_M.gguf")
    flat = put(home, LLAMA + "c_d_Q4_K_M_x-Q4_K_M.gguf")
    assert store.find("hf:a/b/Q4_K_M/x-Q4_K_M.gguf") == store.find("a/b:q4_k_m") == studio
    assert store.find("hf:c/d/Q4_K_M/x-Q4_K_M.gguf") == store.find("c/d:q4_k_m") == flat
    assert [name for name, *_ in listed()] == ["hf:a/b/Q4_K_M/x-Q4_K_M.gguf", str(flat)]


def test_names_of_llama_cpp_that_could_be_of_several_repositories(home: Path) -> None:
    """A name that begins with another name is not that of the shorter repository."""
    longer = put(home, LLAMA + "a_b_v2-GGUF_x-Q8_0.gguf")
    plain = put(home, LLAMA + "a_c_x-Q8_0.gguf")
    assert store.find("hf:a/b") is None
    assert store.find("hf:a/b_v2-GGUF") == longer
    assert store.find("hf:a/c:Q8_0") == plain
    assert [name for name, *_ in listed()] == [str(longer), str(plain)]


def test_files_outside_of_repositories_have_their_paths(home: Path) -> None:
    paths = [
        put(home, STUDIO + path)
        for path in ("a/x.gguf", "my models/b c/x.gguf", "x.gguf")  # too few folders, or spaces
    ]
    paths.append(put(home, LLAMA + "some/a_b-GGUF_x.gguf"))
    assert [name for name, *_ in listed()] == [str(path) for path in paths]
    for path in paths:
        assert store.resolve(str(path)) == path
        with pytest.raises(StoreError, match="remove the file yourself"):
            store.remove(str(path))


def test_the_hubs_cache_comes_first(home: Path) -> None:
    cached = put(home, ".cache/huggingface/hub/" + HUB + "tiny-Q8_0.gguf")
    studio = put(home, LAYOUTS["LM Studio"] + "tiny-Q8_0.gguf")
    four = put(home, LAYOUTS["LM Studio"] + "tiny-Q4_0.gguf")
    assert store.find("hf:Owner/Tiny-GGUF") == cached
    assert store.find("hf:Owner/Tiny-GGUF:Q4_0") == four
    assert listed() == [
        ("hf:Owner/Tiny-GGUF/tiny-Q8_0.gguf", len(MODEL), "hub"),
        ("hf:Owner/Tiny-GGUF/tiny-Q4_0.gguf", len(MODEL), "LM Studio"),
        (str(studio), len(MODEL), "LM Studio"),
    ]


def test_llama_cpp_in_the_hubs_cache_is_listed_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(home / ".cache/huggingface/hub"))
    config.cache_clear()
    put(home, ".cache/huggingface/hub/" + HUB + "tiny-Q8_0.gguf")
    assert listed() == [("hf:Owner/Tiny-GGUF/tiny-Q8_0.gguf", len(MODEL), "hub")]


@pytest.mark.parametrize("tool", LAYOUTS)
def test_pull_says_where_it_is_and_asks_nobody(
    tool: str, home: Path, hub_server: HubAndOllama
) -> None:
    base = LAYOUTS[tool]
    path = put(home, *(base + part for part in SPLIT), base + "mmproj-F16.gguf")
    stages: list[str] = []
    assert store.pull("Owner/Tiny-GGUF:Q6_K", lambda stage, *_: stages.append(stage)) == path
    source = tool.removeprefix("older ").removeprefix("newer ")
    assert stages == [f"{source} has it in {path.parent}, where it is used"]
    plan = store.plan_pull("hf:Owner/Tiny-GGUF")
    assert plan.choice == stages[0]
    assert (plan.missing, plan.size) == (0, 3 * len(MODEL))
    assert [file.weights for file in plan.files] == [True, True, False]
    assert plan.finish() == path
    assert not hub_server.asked


def test_a_cache_at_a_relative_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home, "cache/a_b-GGUF_x-Q8_0.gguf")
    monkeypatch.chdir(home)
    monkeypatch.setenv("LLAMA_CACHE", "cache")
    config.cache_clear()
    (file,) = store.plan_pull("hf:a/b-GGUF").files
    assert file.is_here
    assert store.find("hf:a/b-GGUF") == Path("cache/a_b-GGUF_x-Q8_0.gguf")


def test_another_quantization_is_downloaded(home: Path, hub_server: HubAndOllama) -> None:
    put(home, LAYOUTS["LM Studio"] + "tiny-Q8_0.gguf")
    hub_server.add_repo("Owner/Tiny-GGUF", {"tiny-Q4_0.gguf": MODEL[:300]})
    path = store.resolve("hf:Owner/Tiny-GGUF:Q4_0")
    assert ".cache/huggingface/hub" in str(path)
    assert path.stat().st_size == 300


def test_what_the_hubs_cache_has_is_still_verified(home: Path, hub_server: HubAndOllama) -> None:
    hub_server.add_repo("Owner/Tiny-GGUF", {"tiny-Q8_0.gguf": MODEL})
    path = store.pull("hf:Owner/Tiny-GGUF")
    put(home, LAYOUTS["LM Studio"] + "tiny-Q8_0.gguf", size=100)
    path.resolve().write_bytes(b"damaged")
    assert store.pull("hf:Owner/Tiny-GGUF") == path
    assert path.read_bytes() == MODEL


@pytest.mark.parametrize("tool", LAYOUTS)
def test_files_of_other_tools_are_not_removed(tool: str, home: Path) -> None:
    path = put(home, LAYOUTS[tool] + "tiny-Q8_0.gguf")
    with pytest.raises(StoreError, match=rf"belongs to \w+.*{path.name}"):
        store.remove("hf:Owner/Tiny-GGUF")
    with pytest.raises(ModelNotFoundError):
        store.remove("hf:Owner/Tiny-GGUF:Q4_0")
    assert path.is_file()


def settings(home: Path, text: str | bytes) -> None:
    (home / ".lmstudio").mkdir(exist_ok=True)
    content = text if isinstance(text, bytes) else text.encode()
    (home / ".lmstudio/settings.json").write_bytes(content)


def test_the_folder_of_lm_studios_settings(home: Path) -> None:
    default = put(home, STUDIO + "a/b/x-Q4_0.gguf")
    moved = put(home, "disk/models/a/b/x-Q8_0.gguf")
    settings(home, json.dumps({"theme": "dark", "downloadsFolder": str(home / "disk/models")}))
    assert store.find("hf:a/b:Q8_0") == moved
    assert store.find("hf:a/b:Q4_0") == default  # downloaded before
    settings(home, b"\xef\xbb\xbf" + json.dumps({"downloadsFolder": "~/disk/models"}).encode())
    assert store.find("hf:a/b:Q8_0") == moved
    settings(home, json.dumps({"downloadsFolder": str(home / ".lmstudio/models")}))
    assert listed() == [("hf:a/b/x-Q4_0.gguf", len(MODEL), "LM Studio")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"downloadsFolder": null}',
        '{"downloadsFolder": 3}',
        '{"downloadsFolder": ""}',
        '{"downloadsFolder": "models"}',
        '{"downloadsFolder": "/no/such/folder"}',
        '{"downloadsFolder": "/a\\u0000b"}',
        '{"downloadsFolder": "~nobody-here/models"}',
        '{"downloadsFolder": "\\ud800"}',
        b"\xff\xfe\x00",
        "[" * 100_000,
    ],
)
def test_settings_that_cannot_be_used(text: str | bytes, home: Path) -> None:
    path = put(home, STUDIO + "a/b/x-Q4_0.gguf")
    settings(home, text)
    assert store.find("hf:a/b") == path
    assert listed() == [("hf:a/b/x-Q4_0.gguf", len(MODEL), "LM Studio")]


def test_settings_that_are_a_folder(home: Path) -> None:
    path = put(home, STUDIO + "a/b/x-Q4_0.gguf")
    (home / ".lmstudio/settings.json").mkdir()
    assert store.find("hf:a/b") == path
