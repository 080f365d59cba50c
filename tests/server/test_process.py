"""The server as a process: signals, ports, clients that disconnect, TLS."""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from certificates import write_certificate
from ports import quiet_port
from serving import PATIENCE, Served, serving, start

from tiny_llama import write_tiny_llama

LONG = {
    "messages": [{"role": "user", "content": "Count from 1 to 1000, one number a line."}],
    "stream": True,
    "ignore_eos": True,
    "max_tokens": 8000,  # minutes
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("process") / "tiny.gguf")


def events(response: httpx.Response) -> Iterator[dict[str, object] | str]:
    """The events of a stream; the last one is its end mark."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield data if data == "[DONE]" else json.loads(data)


def get(url: str, **options: object) -> httpx.Response:
    return httpx.get(url, timeout=PATIENCE, **options)


def status(served: Served) -> dict[str, int]:
    return get(f"{served.url}/api/status").json()["models"][0]


def eventually(check: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Reader(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, served: Served, ask: dict[str, object]) -> None:
        super().__init__()
        self._served, self._ask = served, ask
        self.events: list[dict[str, object] | str] = []
        self.begun = threading.Event()
        self.start()

    def run(self) -> None:
        url = f"{self._served.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=self._ask, timeout=PATIENCE) as response:
            for event in events(response):
                self.events.append(event)
                if len(self.events) == 3:
                    self.begun.set()
        self.begun.set()


def test_streams_finish_when_the_server_is_told_to_stop(smollm2_path: Path) -> None:
    ask = LONG | {"max_tokens": 30}
    with serving(smollm2_path, "--shutdown-grace", PATIENCE) as served:
        readers = [Reader(served, ask) for _ in range(16)]
        for reader in readers:
            assert reader.begun.wait(PATIENCE)
        served.terminate()
        for reader in readers:
            reader.join()
        assert served.wait() == 0
    for reader in readers:
        assert reader.events[-1] == "[DONE]"
        assert reader.events[-2]["choices"][0]["finish_reason"] == "length"


def test_streams_end_properly_when_their_time_is_over(smollm2_path: Path) -> None:
    port = quiet_port()
    with serving(smollm2_path, "--shutdown-grace", 0.1, "--port", port) as served:
        readers = [Reader(served, LONG) for _ in range(16)]
        for reader in readers:
            assert reader.begun.wait(PATIENCE)
        served.terminate()
        for reader in readers:
            reader.join()
        assert served.wait() == 0
    for reader in readers:
        assert reader.events[-1] == "[DONE]"
        assert reader.events[-2]["error"]["code"] == "server_stopping"
    with serving(smollm2_path, "--port", port) as again:  # it can be started anew at once
        assert get(f"{again.url}/health").json() == {"status": "ok"}


def test_a_second_signal_ends_texts_now(smollm2_path: Path) -> None:
    with serving(smollm2_path, "--shutdown-grace", 600) as served:
        reader = Reader(served, LONG)
        assert reader.begun.wait(PATIENCE)
        served.terminate()
        served.logged("stopping")
        served.terminate()
        reader.join()
        assert served.wait() == 0
    assert reader.events[-1] == "[DONE]"


def test_while_it_stops_requests_are_refused_and_not_dropped(smollm2_path: Path) -> None:
    with serving(smollm2_path, "--shutdown-grace", PATIENCE) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with closing(http.client.HTTPConnection(host, int(port))) as kept:
            kept.request("GET", "/health")
            kept.getresponse().read()
            reader = Reader(served, LONG | {"max_tokens": 40})
            assert reader.begun.wait(PATIENCE)
            served.terminate()
            reader.join()
            assert reader.events[-1] == "[DONE]"
            try:
                kept.request("GET", "/v1/models")
                assert kept.getresponse().status == 503
            except (http.client.RemoteDisconnected, ConnectionError):
                pass  # it was idle, and was closed
        assert served.wait() == 0


def test_who_goes_away_frees_their_place(server: Served) -> None:
    most = 2000  # tokens of a text, which the context holds
    for stream in (True, False):
        host, port = server.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port))
        body = json.dumps(LONG | {"stream": stream, "n": 2, "max_tokens": most})
        headers = {"content-type": "application/json", "x-request-id": f"gone-{stream}"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        eventually(lambda: status(server)["running"] == 2)
        if stream:
            connection.getresponse().read(100)
        connection.close()
        eventually(lambda: status(server)["running"] == 0)
        line = server.logged(f"id=gone-{stream}")
        assert int(line.rsplit("generated_tokens=", 1)[1]) < 2 * most


def test_a_port_that_is_taken_is_named(server: Served, tiny: Path) -> None:
    port = server.url.rsplit(":", 1)[1]
    second = start(tiny, "--port", port)
    _, said = second.communicate(timeout=PATIENCE)
    assert second.returncode == 2
    assert said == (
        f"error: another program already listens on 127.0.0.1:{port}; stop it, or choose "
        "another port with --port\n"
    )


def test_bad_settings_are_one_line(tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    latin = tmp_path / "keys"
    latin.write_bytes(b"caf\xe9\n")
    for arguments, said in (
        ((tiny, "--host", "0.0.0.0"), "--api-key"),
        ((tiny, "--host", "fe80::1%nowhere", "--api-key", "k"), "cannot listen"),
        ((broken,), "version"),
        (("nothing.gguf",), "no model"),
        ((f"={tiny}",), "no name"),
        ((tiny, "--api-key-file", latin), "is not UTF-8 text"),
        ((tiny, "--slot-save-path", tmp_path / "none"), "none is not a folder"),
        ((tiny, "--tls-certificate", latin, "--tls-key", broken), f"{latin} with the key {broken}"),
    ):
        process = start(*arguments)
        _, error = process.communicate(timeout=PATIENCE)
        assert process.returncode == 2
        assert said in error
        assert error.count("\n") == 1


def test_keys_come_from_files_and_the_environment(tiny: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n\nsecond\n", encoding="utf-8")
    with serving(tiny, "--api-key-file", keys, env={"INGOT_API_KEY": "third"}) as served:
        for key, expected in (("first", 200), ("second", 200), ("third", 200), ("fourth", 401)):
            headers = {"authorization": f"Bearer {key}"}
            answer = get(f"{served.url}/v1/models", headers=headers)
            assert answer.status_code == expected


def test_models_have_the_names_they_are_given(tiny: Path) -> None:
    with serving(f"small={tiny}", "-m", tiny) as served:
        models = get(f"{served.url}/v1/models").json()["data"]
        assert [model["id"] for model in models] == ["small", "tiny"]


def test_connections_can_be_encrypted(tiny: Path, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    with serving(tiny, "--tls-certificate", certificate, "--tls-key", key) as served:
        assert served.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(certificate))
        assert get(f"{served.url}/health", verify=trusting).json() == {"status": "ok"}
