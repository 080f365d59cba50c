"""The replica that keeps files, batches and stored responses stays the same while it lives."""

from ingot.ray.home import Home


def test_the_home_stays_while_it_lives() -> None:
    home = Home()
    assert home.of({"m": 10.0}) == "m"
    # Neither one whose name sorts first nor one whose machine's clock is slow takes over.
    assert home.of({"m": 10.0, "a": 20.0, "b": 5.0}) == "m"
    assert home.of({"a": 20.0, "b": 30.0}) == "a"
    assert home.of({"a": 20.0, "b": 30.0, "c": 40.0}) == "a"


def test_all_fronts_choose_the_same() -> None:
    replicas = {"m": 10.0, "a": 20.0, "z": 10.0}
    assert Home().of(replicas) == Home().of(dict(reversed(replicas.items()))) == "m"
    early = Home()
    early.of({"m": 10.0})
    assert early.of(replicas) == Home().of(replicas)


def test_the_one_with_the_folder_of_batches_is_the_home() -> None:
    home = Home()
    assert home.of({"m": 10.0, "z": 11.0}, ["z"]) == "z"
    assert home.of({"m": 10.0, "a": 20.0}) == "m"  # it is gone
    assert home.of({"m": 10.0, "a": 20.0, "b": 30.0}, ["b"]) == "b"  # it was faster than m
    assert home.of({"m": 10.0, "a": 20.0}, []) == "m"
