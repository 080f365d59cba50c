"""`ingot pull` that is stopped, killed, or run twice at once."""

import hashlib
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from model_server import HubAndOllama
from pull_processes import PATIENCE, ingot, start

from ingot import store
from ingot.store.download import part_of

REPO = "Owner/Tiny-GGUF"
SPLIT = ("big-Q8_0-00001-of-00002.gguf", "big-Q8_0-00002-of-00002.gguf")


@dataclass(frozen=True)
class Offer:
    """A model of the server."""

    name: str
    weights: dict[str, bytes]  # the files of the model, in order
    labels: tuple[str, ...]  # of its downloads


def gguf(size: int, seed: int) -> bytes:
    return b"GGUF" + random.Random(seed).randbytes(size)


def of_the_hub(server: HubAndOllama, size: int) -> Offer:
    pytest.importorskip("huggingface_hub", reason="pip install 'ingot-llm[hub]'")
    weights = {"big-Q8_0.gguf": gguf(size, 1)}
    server.add_repo(REPO, weights)
    return Offer(f"hf:{REPO}", weights, tuple(weights))


def split_with_projector(server: HubAndOllama, size: int) -> Offer:
    pytest.importorskip("huggingface_hub", reason="pip install 'ingot-llm[hub]'")
    weights = {name: gguf(size // 3, seed) for seed, name in enumerate(SPLIT)}
    server.add_repo(REPO, weights | {"mmproj-F16.gguf": gguf(size // 3, 2)})
    return Offer(f"hf:{REPO}:Q8_0", weights, (*weights, "mmproj-F16.gguf"))


def at_a_url(server: HubAndOllama, size: int) -> Offer:
    content = gguf(size, 3)
    server.files["/big.gguf"] = content
    return Offer(f"{server.url}/big.gguf", {"big.gguf": content}, ("big.gguf",))


def of_ollama(server: HubAndOllama, size: int) -> Offer:
    layers = {"model": gguf(size, 4), "projector": gguf(1000, 5), "system": b"Be brief."}
    server.add_ollama("library/big", "latest", layers)
    name = f"ollama:{server.host}/library/big:latest"
    labels = (name, f"projector of {name}", f"system of {name}")
    return Offer(name, {"big-latest.gguf": layers["model"]}, labels)


OFFERS = (of_the_hub, split_with_projector, at_a_url, of_ollama)
Offering = Callable[[HubAndOllama, int], Offer]


def check_whole(offer: Offer, path: Path) -> None:
    for name, content in offer.weights.items():
        assert path.with_name(name).read_bytes() == content


def check_blobs(home: Path) -> None:
    """A blob that has its name has its content."""
    for blob in home.rglob("blobs/*"):
        if blob.is_file() and "ingot." not in blob.name:
            assert hashlib.sha256(blob.read_bytes()).hexdigest() in blob.name


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize("offered", OFFERS)
def test_two_pulls_at_once_download_a_model_once(
    offered: Offering, server: HubAndOllama, environment: dict[str, str], home: Path
) -> None:
    offer = offered(server, 24 << 20)
    server.pace = server.away.pace = server.stop  # so slow that the second one finds the first
    said = [home / "first.txt", home / "second.txt"]
    children = [start(environment, offer.name, file) for file in said]

    def one_waits() -> bool:
        return any("waiting for another download" in file.read_text() for file in said)

    wait_until(lambda: one_waits() or any(child.poll() is not None for child in children))
    assert one_waits()
    assert store.find(offer.name) is None
    server.pace = server.away.pace = None
    printed = [child.communicate(timeout=PATIENCE)[0].strip() for child in children]
    assert [child.returncode for child in children] == [0, 0], [file.read_text() for file in said]
    assert printed[0] == printed[1]
    assert store.find(offer.name) == Path(printed[0])
    check_whole(offer, Path(printed[0]))
    check_blobs(home)
    lines = [line for file in said for line in file.read_text().splitlines()]
    for label in offer.labels:
        downloads = [line for line in lines if line.startswith(f"downloading {label} (")]
        assert len(downloads) == 1, lines
    for path in server.away.files:  # where the hub and ollama have their files
        assert len(server.away.gets(path)) == 1
    assert not list(home.rglob("*.ingot.*"))
    assert len(store.list_models()) == 1


def test_ctrl_c_leaves_a_part_that_is_continued(
    server: HubAndOllama, environment: dict[str, str], home: Path
) -> None:
    offer = of_ollama(server, 8 << 20)
    (content,) = offer.weights.values()
    target = store.plan_pull(offer.name).files[0].target
    server.away.pace = server.away.stop  # slow
    said = home / "said.txt"
    child = start(environment, offer.name, said)
    wait_until(lambda: part_of(target).exists() and part_of(target).stat().st_size > 100_000)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=PATIENCE)
    assert child.returncode == 130
    assert "the same command continues the download" in said.read_text()
    assert "Traceback" not in said.read_text()
    have = part_of(target).stat().st_size
    assert part_of(target).read_bytes() == content[:have]
    server.away.pace = None
    assert ingot(environment, "pull", offer.name).returncode == 0
    assert store.resolve(offer.name).read_bytes() == content
    last = server.away.gets(server.blob(content))[-1].headers["range"]
    assert last.startswith(f"bytes={have}-")


def kill_a_pull(
    offer: Offer, server: HubAndOllama, environment: dict[str, str], seconds: float
) -> None:
    """Kill it so many seconds after its first request."""
    before = len(server.asked)
    child = start(environment, offer.name, Path(environment["HOME"]) / "said.txt")
    wait_until(lambda: child.poll() is not None or len(server.asked) > before)
    time.sleep(seconds)
    child.kill()
    child.communicate(timeout=PATIENCE)


@pytest.mark.oracle
@pytest.mark.parametrize("offered", OFFERS)
def test_a_pull_that_is_killed_leaves_nothing_that_is_taken_for_whole(
    offered: Offering, server: HubAndOllama, environment: dict[str, str], home: Path
) -> None:
    """SIGKILL at 20 random moments, then the next pull continues; at the end it is complete."""
    moments = random.Random(offered.__name__)
    offer = offered(server, 3 << 20)
    first = next(iter(offer.weights.values()))
    server.pace = server.away.pace = server.stop  # slow
    unfinished = 0
    for _ in range(20):
        kill_a_pull(offer, server, environment, moments.uniform(0, 0.4))
        check_blobs(home)
        if found := store.find(offer.name):
            check_whole(offer, found)
        unfinished += found is None
        assert all(model.path.read_bytes() == first for model in store.list_models())
    assert unfinished > 0
    server.pace = server.away.pace = None
    assert ingot(environment, "pull", offer.name).returncode == 0
    found = store.find(offer.name)
    assert found
    check_whole(offer, found)
    check_blobs(home)
