"""Home: the replica that answers for what is kept in the memory of one of them.

The replicas that live come in, with the times when they started; the name of one goes out. It stays
the same while that one lives, and is the oldest otherwise: a replica that is added never takes
over, and all fronts choose the same, also one that starts later. It does not know Ray.
"""

from collections.abc import Mapping


class Home:
    """Which replica is the home."""

    def __init__(self) -> None:
        self._name: str | None = None

    def of(self, started: Mapping[str, float]) -> str:
        """The home among replicas, of which there is at least one."""
        if self._name is None or self._name not in started:
            self._name = min(started, key=lambda name: (started[name], name))
        return self._name
