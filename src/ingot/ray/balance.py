"""Balance: which replica gets a request, by the prefixes it has seen and by its load.

Keys of a prompt's beginning and loads come in; replicas go out, the best first. A replica that has
more than its share is not preferred, whatever its cache has: neither of the requests that run, nor
of those that it got lately. It does not know Ray.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set

SLACK = 0.25  # that a replica's share may be above the mean
_SPARE = 2  # requests above that, so that a few requests need not be spread
_MEMORY = 64  # requests per replica after which what it got counts half
_HEAVY = 1e12  # when weights are made small again
_MOST_KEYS = 1 << 18


class Balance:
    """What replicas have seen, and how much they got."""

    def __init__(self, most_keys: int = _MOST_KEYS) -> None:
        """`most_keys` are remembered; the oldest are forgotten first."""
        self._seen: OrderedDict[int, set[str]] = OrderedDict()
        self._most_keys = most_keys
        self._got: dict[str, float] = {}
        self._weight = 1.0  # of the next request; it grows, so that older ones count less

    def rank(self, keys: Sequence[int], running: Mapping[str, int]) -> list[str]:
        """The replicas in the order in which they are preferred.

        `running` are the requests of each replica.
        """
        got = {name: self._got.get(name, 0.0) for name in running}
        most_running, most_got = _limit(running, 1.0), _limit(got, self._weight)
        matched = self._matched(keys, running)
        seen = [name for name in matched if running[name] <= most_running and got[name] <= most_got]
        seen.sort(key=lambda name: (-matched[name], running[name], got[name], name))
        # The rest by load, and what is equal there by what it got.
        others = sorted(running.keys() - set(seen))
        others.sort(key=got.__getitem__)
        others.sort(key=running.__getitem__)
        return seen + others

    def _matched(self, keys: Sequence[int], names: Mapping[str, int]) -> dict[str, int]:
        """How many keys replicas have seen, from the first one on; those that saw one."""
        matched: dict[str, int] = {}
        left: Set[str] = names.keys()
        for count, key in enumerate(keys, 1):
            left = left & self._seen.get(key, frozenset())
            if not left:
                break
            matched.update(dict.fromkeys(left, count))
        return matched

    def took(self, name: str, keys: Sequence[int]) -> None:
        """A replica got a request."""
        self._got[name] = self._got.get(name, 0.0) + self._weight
        self._weight *= 2 ** (1 / (_MEMORY * len(self._got)))
        if self._weight > _HEAVY:
            self._got = {each: amount / self._weight for each, amount in self._got.items()}
            self._weight = 1.0
        for key in keys:
            self._seen.setdefault(key, set()).add(name)
            self._seen.move_to_end(key)
        while len(self._seen) > self._most_keys:
            self._seen.popitem(last=False)

    def keep(self, names: set[str]) -> None:
        """Forget all other replicas; new ones begin with the mean of what the others got."""
        gone = self._got.keys() - names
        mean = _mean([amount for name, amount in self._got.items() if name in names])
        self._got = {name: self._got.get(name, mean) for name in names}
        if gone:
            for seen in self._seen.values():
                seen.difference_update(gone)


def _limit(amounts: Mapping[str, float], request: float) -> float:
    """The most that a replica may have to be preferred for what it has seen."""
    return (1 + SLACK) * _mean([*amounts.values()]) + _SPARE * request


def _mean(amounts: Sequence[float]) -> float:
    return sum(amounts) / len(amounts) if amounts else 0.0
