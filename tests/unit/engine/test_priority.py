"""Which waiting request is admitted next, and which one gives way if the cache is full."""

import threading
from pathlib import Path
from typing import Any

import pytest

from holding import PATIENCE, held
from ingot import LLM
from ingot.errors import SamplingError

SHORT = {"temperature": 0, "ignore_eos": True, "max_tokens": 3}


def order_of(llm: LLM, priorities: list[int | None]) -> list[int]:
    """The numbers of requests that arrive together, in the order of their first tokens."""
    began: list[int] = []

    def note(number: int) -> Any:
        def processor(_: Any, __: Any) -> None:
            if number not in began:
                began.append(number)

        return processor

    with held(llm):
        requests = [
            llm.stream(
                [256, 65 + number],
                processors=[note(number)],
                **SHORT,
                **({} if priority is None else {"priority": priority}),
            )
            for number, priority in enumerate(priorities)
        ]
    for request in requests:
        request.result()
    return began


def test_lower_values_go_first_and_equal_ones_in_the_order_they_came(tiny: Path) -> None:
    with LLM(tiny, threads=1, max_running=1) as llm:
        assert order_of(llm, [0, 0, 0]) == [0, 1, 2]
        assert order_of(llm, [7, 0, -3, None, 7, -3]) == [2, 5, 1, 3, 0, 4]


def test_a_full_cache_preempts_the_least_urgent_request(tiny: Path) -> None:
    fields = {"temperature": 0, "ignore_eos": True, "max_tokens": 150, "reuse": False}
    written: list[str] = []
    runs, go_on = threading.Event(), threading.Event()

    def patient_token(_: Any, __: Any) -> None:
        written.append("patient")
        runs.set()
        assert go_on.wait(PATIENCE)

    def urgent_token(_: Any, __: Any) -> None:
        written.append("urgent")

    with LLM(tiny, threads=1, context=192, cache_tokens=256) as llm:
        patient = llm.stream([256, 65], priority=1, processors=[patient_token], **fields)
        assert runs.wait(PATIENCE)
        urgent = llm.stream([256, 66], priority=0, processors=[urgent_token], **fields)
        go_on.set()
        assert len(urgent.result().token_ids) == len(patient.result().token_ids) == 150
        assert llm.stats.preemptions > 0
    assert written[-1] == "patient", "it came first, and gave way"


def test_a_request_knows_its_priority(llm: LLM) -> None:
    assert llm.stream([256], **SHORT).priority == 0
    request = llm.stream([256], priority=-2, **SHORT)
    assert (request.priority, request.fork(seed=1).priority) == (-2, -2)
    for wrong in (1.5, True, "high", None):
        with pytest.raises(SamplingError, match="priority"):
            llm.generate([256], priority=wrong, **SHORT)
