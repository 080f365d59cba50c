"""Downloads of one file from a server that misbehaves."""

import hashlib
import multiprocessing
import shutil
import threading
from pathlib import Path

import pytest
from model_server import Fault, HubAndOllama

from ingot.errors import (
    AccessDeniedError,
    ChecksumError,
    DiskSpaceError,
    DownloadError,
    ModelNotFoundError,
    StoreError,
)
from ingot.store import http as web
from ingot.store.download import Checksum, Source, download, part_of
from ingot.store.progress import silent

CONTENT = b"GGUF" + hashlib.shake_128(b"model").digest(300_000)
CHECKSUM = Checksum(hashlib.sha256(CONTENT).hexdigest())
PATH = "/models/tiny.gguf"


@pytest.fixture
def source(server: HubAndOllama) -> Source:
    server.files[PATH] = CONTENT
    return Source(server.url + PATH, "tiny.gguf", len(CONTENT), CHECKSUM)


@pytest.fixture
def unknown(server: HubAndOllama) -> Source:
    """The same file, of which neither size nor checksum are known."""
    server.files[PATH] = CONTENT
    return Source(server.url + PATH, "tiny.gguf")


@pytest.fixture
def target(home: Path) -> Path:
    return home / "models" / "tiny.gguf"


def ranges(server: HubAndOllama) -> list[str | None]:
    return [asked.headers.get("range") for asked in server.gets(PATH)]


def test_a_file_arrives_whole_and_alone(server: HubAndOllama, source: Source, target: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    download(source, target, lambda *report: seen.append(report))
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    assert seen[0] == ("downloading tiny.gguf", 0, len(CONTENT))
    assert seen[-1] == ("downloading tiny.gguf", len(CONTENT), len(CONTENT))
    download(source, target, silent)
    assert len(server.gets(PATH)) == 1


def test_a_cut_connection_is_continued_where_it_ended(
    server: HubAndOllama, source: Source, target: Path
) -> None:
    server.fail(PATH, Fault(cut=1000), Fault(cut=0), Fault(cut=50_000))
    download(source, target, silent)
    assert target.read_bytes() == CONTENT
    last = len(CONTENT) - 1
    assert ranges(server) == [
        None,
        f"bytes=1000-{last}",
        f"bytes=1000-{last}",
        f"bytes=51000-{last}",
    ]


def test_a_body_that_stalls_is_continued(
    server: HubAndOllama, source: Source, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TIMEOUT", 0.3)
    server.fail(PATH, Fault(stall=2000))
    download(source, target, silent)
    assert target.read_bytes() == CONTENT
    assert ranges(server)[1] == f"bytes=2000-{len(CONTENT) - 1}"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(
    status: int, server: HubAndOllama, source: Source, target: Path
) -> None:
    server.fail(PATH, Fault(status), Fault(status))
    download(source, target, silent)
    assert target.read_bytes() == CONTENT
    assert len(server.gets(PATH)) == 3


def test_a_server_says_how_long_to_wait(
    server: HubAndOllama, source: Source, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(web.time, "sleep", waited.append)
    for answer in ("7", "100000", "-1", "Wed, 21 Oct 2026 07:28:00 GMT"):
        server.fail(PATH, Fault(429, {"Retry-After": answer}))
    download(source, target, silent)
    assert waited == [7.0, web.LONGEST_WAIT, 0.0, web.FIRST_WAIT * 8]


def test_too_many_failures_end_the_download_and_keep_the_part(
    server: HubAndOllama, source: Source, target: Path
) -> None:
    server.fail(PATH, Fault(cut=5000), *[Fault(503)] * 5)
    with pytest.raises(DownloadError, match=r"status 503; 5 tries failed"):
        download(source, target, silent)
    assert not target.exists()
    assert part_of(target).read_bytes() == CONTENT[:5000]
    download(source, target, silent)
    assert target.read_bytes() == CONTENT
    assert ranges(server)[-1] == f"bytes=5000-{len(CONTENT) - 1}"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, AccessDeniedError),
        (403, AccessDeniedError),
        (404, ModelNotFoundError),
        (410, ModelNotFoundError),
        (400, DownloadError),
        (416, DownloadError),
    ],
)
def test_a_refusal_is_not_tried_again(
    status: int, error: type[StoreError], server: HubAndOllama, source: Source, target: Path
) -> None:
    server.fail(PATH, Fault(status))
    with pytest.raises(error, match=f"status {status}"):
        download(source, target, silent)
    assert len(server.gets(PATH)) == 1
    assert list(target.parent.iterdir()) == []


def test_a_server_that_cannot_be_reached(target: Path, server: HubAndOllama) -> None:
    server.away.close()
    with pytest.raises(DownloadError, match=r"localhost:\d+ cannot be reached"):
        download(Source(f"{server.away.url}/x.gguf", "x"), target, silent)


def test_changed_bytes_are_refused_and_removed(
    server: HubAndOllama, source: Source, target: Path
) -> None:
    server.fail(PATH, Fault(change=77))
    with pytest.raises(ChecksumError, match="another checksum"):
        download(source, target, silent)
    assert list(target.parent.iterdir()) == []
    download(source, target, silent)
    assert target.read_bytes() == CONTENT


def test_a_bad_part_costs_one_more_download_only(
    server: HubAndOllama, source: Source, target: Path
) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(b"x" * 100_000)
    download(source, target, silent)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == [f"bytes=100000-{len(CONTENT) - 1}", None]


@pytest.mark.parametrize("size", [len(CONTENT) + 1, len(CONTENT) + 10_000_000])
def test_a_part_that_is_too_long_is_dropped(
    size: int, server: HubAndOllama, source: Source, target: Path
) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(b"x" * size)
    download(source, target, silent)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None]


def test_a_part_that_is_complete_is_only_verified(
    server: HubAndOllama, source: Source, target: Path
) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(CONTENT)
    download(source, target, silent)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == []


def test_a_server_without_ranges_sends_all_again(
    server: HubAndOllama, source: Source, target: Path
) -> None:
    server.fail(PATH, Fault(cut=9999), Fault(whole=True))
    download(source, target, silent)
    assert target.read_bytes() == CONTENT


def test_another_size_than_promised(server: HubAndOllama, source: Source, target: Path) -> None:
    server.files[PATH] = CONTENT + b"more"
    with pytest.raises(DownloadError, match=f"has {len(CONTENT) + 4} bytes"):
        download(source, target, silent)
    assert list(target.parent.iterdir()) == []


def test_no_more_than_the_promised_bytes_are_written(
    server: HubAndOllama, source: Source, target: Path
) -> None:
    server.files[PATH] = CONTENT + b"x" * 5_000_000
    server.fail(PATH, Fault(lengthless=True))
    with pytest.raises(DownloadError, match="sends more than it said"):
        download(source, target, silent)
    assert not target.exists()
    assert part_of(target).stat().st_size <= len(CONTENT)


def test_a_full_disk_is_seen_before_a_byte_is_written(
    source: Source, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=len(CONTENT))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskSpaceError, match=r"takes 0\.00 GiB.*INGOT_CACHE"):
        download(source, target, silent)
    assert list(target.parent.iterdir()) == []


def test_a_folder_that_cannot_be_written(source: Source, target: Path) -> None:
    target.parent.write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"cannot store tiny\.gguf in"):
        download(source, target, silent)


def test_without_a_checksum_the_version_is_kept_beside_the_part(
    server: HubAndOllama, unknown: Source, target: Path
) -> None:
    server.fail(PATH, Fault(cut=5000), *[Fault(503)] * 5)
    with pytest.raises(DownloadError):
        download(unknown, target, silent)
    download(unknown, target, silent)
    assert target.read_bytes() == CONTENT
    assert ranges(server)[-1] == "bytes=5000-"
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_without_a_checksum_a_new_version_is_downloaded_from_its_beginning(
    server: HubAndOllama, unknown: Source, target: Path
) -> None:
    server.fail(PATH, Fault(cut=5000), *[Fault(503)] * 5)
    with pytest.raises(DownloadError):
        download(unknown, target, silent)
    server.files[PATH] = other = b"GGUF" + bytes(200_000)
    download(unknown, target, silent)
    assert target.read_bytes() == other


def test_without_a_checksum_and_a_version_nothing_is_continued(
    unknown: Source, target: Path
) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(b"GGUF of something else")
    download(unknown, target, silent)
    assert target.read_bytes() == CONTENT


def test_a_file_without_a_length(server: HubAndOllama, unknown: Source, target: Path) -> None:
    server.fail(PATH, Fault(lengthless=True))
    download(unknown, target, silent)
    assert target.read_bytes() == CONTENT


def test_a_page_is_not_a_model(server: HubAndOllama, unknown: Source, target: Path) -> None:
    server.files[PATH] = b"<html>log in</html>"
    with pytest.raises(StoreError, match="is not a GGUF file"):
        download(unknown, target, silent)
    assert list(target.parent.iterdir()) == []


def test_a_token_stays_with_its_host(server: HubAndOllama, target: Path) -> None:
    server.redirects["/a"] = f"{server.url}/b"
    server.redirects["/b"] = f"{server.away.url}/c?signature=secret"
    server.away.files["/c"] = CONTENT
    headers = {"Authorization": "Bearer hf_secret"}
    source = Source(f"{server.url}/a", "tiny.gguf", len(CONTENT), CHECKSUM, headers)
    server.away.fail("/c", Fault(cut=100))
    download(source, target, silent)
    assert target.read_bytes() == CONTENT
    here = [asked.headers.get("authorization") for asked in server.asked]
    away = [asked.headers.get("authorization") for asked in server.away.asked]
    assert here == ["Bearer hf_secret"] * 4
    assert away == [None] * 2
    assert "hf_secret" not in repr(source)


def test_messages_do_not_show_tokens_and_signatures(server: HubAndOllama, target: Path) -> None:
    source = Source(f"{server.url}/no?token=secret", "x", headers={"Authorization": "secret"})
    with pytest.raises(ModelNotFoundError) as caught:
        download(source, target, silent)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["http://example.com/x", "file:///etc/passwd", "ftp://localhost/x", "//x", "no url"]
)
def test_redirects_to_elsewhere_are_refused(
    address: str, server: HubAndOllama, target: Path
) -> None:
    server.redirects["/a"] = address
    with pytest.raises(StoreError):
        download(Source(f"{server.url}/a", "x"), target, silent)
    assert not target.exists()


def test_redirects_without_end(server: HubAndOllama, target: Path) -> None:
    server.redirects["/a"] = f"{server.url}/a"
    with pytest.raises(DownloadError, match="302"):
        download(Source(f"{server.url}/a", "x"), target, silent)
    assert len(server.asked) < 20


def test_two_threads_download_once(server: HubAndOllama, source: Source, target: Path) -> None:
    server.pace = threading.Event()
    waits: list[str] = []
    both = [
        threading.Thread(
            target=download, args=(source, target, lambda stage, *_: waits.append(stage))
        )
        for _ in range(2)
    ]
    for thread in both:
        thread.start()
    while "waiting for another download" not in waits:
        assert any(thread.is_alive() for thread in both)
    server.pace.set()
    for thread in both:
        thread.join()
    assert target.read_bytes() == CONTENT
    assert len(server.gets(PATH)) == 1
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_four_processes_download_once(server: HubAndOllama, source: Source, target: Path) -> None:
    server.pace = threading.Event()
    context = multiprocessing.get_context("spawn")
    all_of_them = [
        context.Process(target=download, args=(source, target, silent)) for _ in range(4)
    ]
    for process in all_of_them:
        process.start()
    for process in all_of_them:
        process.join(120)
    assert [process.exitcode for process in all_of_them] == [0] * 4
    assert target.read_bytes() == CONTENT
    assert len(server.gets(PATH)) == 1
    assert [path.name for path in target.parent.iterdir()] == [target.name]
