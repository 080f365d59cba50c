"""Home: the replica that answers for what is kept in the memory of one of them.

The replicas that live come in, with the times when they started; the name of one goes out: the one
that claimed the folder of batches when it started, if there is one. Or else it stays the same while
that one lives, and is the oldest at first: a replica that is added does not take over, and all
fronts choose the same, also one that starts later. It does not know Ray.
"""

from collections.abc import Collection, Mapping


class Home:
    """Which replica is the home."""

    def __init__(self) -> None:
        self._name: str | None = None

    def of(self, started: Mapping[str, float], owners: Collection[str] = ()) -> str:
        """The home among replicas, of which there is at least one.

        `owners` claimed the folder of batches; of all that live, one at most.
        """
        if owners:
            self._name = min(owners)
        elif self._name is None or self._name not in started:
            self._name = min(started, key=lambda name: (started[name], name))
        return self._name
