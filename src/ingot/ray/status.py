"""What the page's dashboard shows of all replicas: their states and histories as one.

The JSON of `/api/status`, `/api/status/history` and `/api/ps` comes in by the names of the
replicas; the same form goes out. Counts are added; requests are listed together. A model also has
the list of its replicas.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_SAME = frozenset({"name", "context", "gpu"})  # of all replicas
# What is also told of each replica.
_OF_ONE = ("running", "slots", "waiting", "cache_blocks", "cache_blocks_held")

Json = dict[str, Any]


def joined_status(found: Mapping[str, Json]) -> Json:
    """The states of servers as one."""
    states = [*found.values()]
    models = []
    for name in (model["name"] for model in states[0]["models"]):
        by_replica = {
            replica: model
            for replica, status in found.items()
            for model in status["models"]
            if model["name"] == name
        }
        joined = _joined_model([*by_replica.values()])
        models.append({**joined, "replicas": _replicas(by_replica)})
    ended = [request for status in states for request in status["ended"]]
    return {
        "uptime_seconds": max(status["uptime_seconds"] for status in states),
        "models": models,
        "ended": sorted(ended, key=lambda request: -request["age"]),  # the oldest first
    }


def _replicas(models: Mapping[str, Json]) -> list[Json]:
    """The replicas in which a model is open."""
    return [
        {"name": replica, **{field: model[field] for field in _OF_ONE}}
        for replica, model in models.items()
        if model["loaded"]
    ]


def _joined_model(found: Sequence[Json]) -> Json:
    loaded = [model for model in found if model["loaded"]] or found
    joined = dict(loaded[0])
    for name, value in joined.items():
        values = [model[name] for model in loaded]
        if name in _SAME:
            continue
        if isinstance(value, bool):
            joined[name] = any(values)
        elif isinstance(value, list):
            joined[name] = [each for part in values for each in part]
        else:
            joined[name] = max(values) if name.endswith("_seconds") else sum(values)
    return joined


def joined_history(found: Mapping[str, Json]) -> Json:
    """The counters of the seconds that all servers have seen, added up; the oldest first."""
    by_age = [
        {round(sample["age"]): sample for sample in each["samples"]} for each in found.values()
    ]
    ages = set.intersection(*(set(each) for each in by_age))
    samples = []
    for age in sorted(ages, reverse=True):
        models: dict[str, dict[str, int]] = {}
        for each in by_age:
            for model, counts in each[age]["models"].items():
                sums = models.setdefault(model, dict.fromkeys(counts, 0))
                for name, count in counts.items():
                    sums[name] += count
        samples.append({"age": by_age[0][age]["age"], "models": models})
    return {"samples": samples}


def joined_models(found: Mapping[str, Json]) -> Json:
    """The models that are open on any server; of one that several have, what closes last."""
    models: dict[str, Json] = {}
    for model in (model for each in found.values() for model in each["models"]):
        known = models.setdefault(model["name"], model)
        if model["expires_at"] > known["expires_at"]:
            models[model["name"]] = model
    return {"models": [*models.values()]}
