"""What judges a run of chaos: it accepts what is promised, and nothing else."""

from random import Random

from chaos.invariants import MORE_MEMORY, MOST_MORE_MEMORY, about_memory, about_requests
from chaos.load import Kind, Outcome
from chaos.run import FAULTS, rounds

MIB = 1 << 20


def test_only_the_ends_that_a_fault_excuses_are_accepted() -> None:
    ends = [Outcome(kind, "x") for kind in Kind]
    found = " ".join(about_requests([*ends, *ends], frozenset({Kind.REFUSED, Kind.ENDED})))
    assert "2 requests cut: x" in found
    assert not any(kind in found for kind in (Kind.EXACT, Kind.DROPPED, Kind.REFUSED, Kind.ENDED))


def test_no_fault_excuses_a_wrong_text_or_a_hang() -> None:
    for fault in FAULTS:
        assert not fault.excused & {Kind.WRONG, Kind.HUNG}, fault


def test_memory_that_grows_slowly_or_jumps_is_noticed() -> None:
    flat = [60 * MIB + number % 3 * MIB for number in range(12)]
    assert not list(about_memory(flat))
    assert not list(about_memory([]))
    growing = [60 * MIB + number * MORE_MEMORY // 6 for number in range(12)]
    assert "grew" in next(about_memory(growing))
    assert "jumped" in next(about_memory([flat[0], flat[0] + MOST_MORE_MEMORY + 1, flat[0]]))


def test_every_round_has_every_fault_and_the_seed_gives_the_order() -> None:
    faults = list(FAULTS)
    first, second = rounds(faults, Random(5)), rounds(faults, Random(5))
    order = [next(first) for _ in range(2 * len(faults))]
    assert order == [next(second) for _ in order]
    assert set(order[: len(faults)]) == set(order[len(faults) :]) == set(faults)
    assert order[: len(faults)] != order[len(faults) :]
    assert all(fault.__doc__ for fault in faults)
