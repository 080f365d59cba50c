"""Slots: which request has which, and saving, restoring and erasing them."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from ingot.engine import RequestState
from ingot.server.slot_table import NO_SLOT, SlotTable

LONG = "There was once a miller who had three sons, a mill, a donkey and a cat. " * 6


class FakeRequest:
    """As much of a request as a table looks at."""

    def __init__(self, number: int) -> None:
        self.state = RequestState.GENERATING
        self.priority = 0
        self.prompt_ids = (number,)
        self.token_ids = (number, number)


def entered(table: SlotTable, *numbers: int, wanted: int | None = None) -> list[Any]:
    requests: list[Any] = [FakeRequest(number) for number in numbers]
    table.enter(requests, wanted)
    return requests


def test_texts_get_the_lowest_free_slot_or_the_one_they_want() -> None:
    table = SlotTable(4)
    first, second = entered(table, 1, 2)
    (third,) = entered(table, 3, wanted=3)
    (fourth,) = entered(table, 4, wanted=3)
    assert [table.number_of(request) for request in (first, second, third, fourth)] == [0, 1, 3, 2]
    table.leave([second])
    assert table.number_of(second) == NO_SLOT
    assert table.slots[1].prompt_ids == (2,)
    assert table.slots[1].token_ids == (2, 2)
    assert not table.slots[1].is_busy
    (fifth,) = entered(table, 5)
    assert table.number_of(fifth) == 1
    assert [slot.task for slot in table.slots] == [0, 4, 3, 2]


def test_who_finds_none_waits_for_the_first_that_is_free() -> None:
    table = SlotTable(1)
    first, second, third = entered(table, 1, 2, 3)
    assert [table.number_of(request) for request in (first, second, third)] == [0, -1, -1]
    table.leave([second])  # gone before its turn
    table.leave([first])
    assert table.number_of(third) == 0
    third.state = RequestState.DONE  # ended, and not yet read to the end
    (fourth,) = entered(table, 4)
    assert table.number_of(fourth) == 0
    assert table.slots[0].prompt_ids == (3,)
    table.leave([third])
    assert table.slots[0].request is fourth


def test_a_free_slot_goes_to_the_most_urgent_request() -> None:
    table = SlotTable(1)
    first, patient, urgent = entered(table, 1, 2, 3)
    patient.priority, urgent.priority = 1, -1
    table.leave([first])
    assert [table.number_of(request) for request in (patient, urgent)] == [NO_SLOT, 0]


def act(http: httpx.Client, slot: int, action: str, **body: object) -> Any:
    answer = http.post(f"/slots/{slot}", params={"action": action}, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def complete(http: httpx.Client, **fields: object) -> Any:
    body = {"prompt": LONG, "n_predict": 40, "temperature": 0, "ignore_eos": True, **fields}
    return http.post("/completion", json=body).json()


def test_a_text_that_is_being_written_is_seen_in_its_slot(http: httpx.Client) -> None:
    while '"is_processing":true' in (listed := http.get("/slots")).text:
        pass  # what an earlier test has left comes to its end
    idle = listed.json()
    assert [slot["id"] for slot in idle] == list(range(32))
    body = {"prompt": "One", "n_predict": 2000, "ignore_eos": True, "stream": True, "id_slot": 7}
    with http.stream("POST", "/completion", json=body) as answer:
        lines = answer.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))
        assert first["id_slot"] == 7
        with httpx.Client(base_url=http.base_url, timeout=http.timeout) as other:
            (busy,) = (slot for slot in other.get("/slots").json() if slot["is_processing"])
            refused = other.post("/slots/7?action=erase")
    assert (busy["id"], busy["n_ctx"], busy["speculative"]) == (7, 2048, True)
    assert busy["params"]["n_predict"] == 2000
    assert busy["next_token"]["has_next_token"] is True
    assert busy["next_token"]["n_decoded"] + busy["next_token"]["n_remain"] == 2000
    assert refused.status_code == 400
    assert "is running" in refused.json()["error"]["message"]


def test_a_slot_is_saved_brought_back_and_erased(http: httpx.Client) -> None:
    first = complete(http, id_slot=3)
    assert first["id_slot"] == 3
    tokens = first["tokens_evaluated"] + first["tokens_predicted"]
    saved = act(http, 3, "save", filename="miller.bin")
    assert (saved["id_slot"], saved["filename"]) == (3, "miller.bin")
    assert saved["n_saved"] == tokens // 32 * 32
    assert saved["n_written"] > 10_000
    assert saved["timings"]["save_ms"] > 0
    assert act(http, 3, "erase") == {"id_slot": 3, "n_erased": tokens}
    assert complete(http, n_predict=1, cache_prompt=True)["tokens_cached"] == 0
    act(http, 0, "erase")
    restored = act(http, 5, "restore", filename="miller.bin")
    assert restored["n_restored"] == saved["n_saved"]
    assert restored["n_read"] == saved["n_written"]
    again = complete(http)
    assert again["tokens_cached"] >= (again["tokens_evaluated"] - 1) // 32 * 32
    assert again["content"] == first["content"]


@pytest.mark.parametrize(
    "name", ["../x", "/tmp/x", "a/b", "..", ".hidden", "", "a\x00b", "a\\b", "-x", "x" * 300, None]
)
def test_no_name_leads_out_of_the_folder(http: httpx.Client, name: str | None) -> None:
    complete(http, n_predict=1, id_slot=0)
    for action in ("save", "restore"):
        answer = http.post(f"/slots/0?action={action}", json={"filename": name})
        assert answer.status_code == 400
        assert "filename" in answer.json()["error"]["message"]


def test_what_cannot_be_done_says_why(http: httpx.Client) -> None:
    def message(path: str, **body: object) -> str:
        answer = http.post(path, json=body)
        assert answer.status_code == 400
        said: str = answer.json()["error"]["message"]
        return said

    assert "no slot 99" in message("/slots/99?action=erase")
    assert "no saved slot" in message("/slots/0?action=restore", filename="nothing")
    assert "no request yet" in message("/slots/30?action=save", filename="x")
    assert "action" in message("/slots/0?action=melt")
    assert "action" in message("/slots/0")
    assert "id_slot" in message("/slots/first?action=erase")


def test_a_link_is_not_followed(http: httpx.Client, slots_folder: Path, tmp_path: Path) -> None:
    saved = act(http, complete(http, id_slot=2)["id_slot"], "save", filename="real.bin")
    (slots_folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    answer = http.post("/slots/2?action=save", json={"filename": "link.bin"})
    assert answer.status_code == 400
    assert not (tmp_path / "outside.bin").exists()
    assert (slots_folder / saved["filename"]).stat().st_size == saved["n_written"]
