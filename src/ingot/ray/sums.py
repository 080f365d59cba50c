"""The metrics of all replicas as one: added up, or each with its replica's name as a label.

Prometheus's texts come in by replica, one text goes out. Counters, histograms and most gauges are
added; averages are averaged, and largest values stay the largest.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import parse_qs

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_MEAN = frozenset(
    {
        "ingot_batch_size",
        "ingot_tokens_per_step",
        "llamacpp:prompt_tokens_seconds",
        "llamacpp:predicted_tokens_seconds",
        "llamacpp:n_busy_slots_per_decode",
        "vllm:kv_cache_usage_perc",
    }
)
_LARGEST = frozenset({"llamacpp:n_tokens_max", "ingot_model_loaded"})


def added_up(texts: Mapping[str, str], query: bytes = b"") -> bytes:
    """One text of those of all replicas; `by=replica` in the query keeps them apart."""
    apart = parse_qs(query.decode("latin-1")).get("by") == ["replica"]
    return (labelled if apart else summed)(texts)


def summed(texts: Mapping[str, str]) -> bytes:
    """The sums over the replicas."""
    families: dict[str, Metric] = {}
    found: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}
    for text in texts.values():
        for family in text_string_to_metric_families(text):
            families.setdefault(family.name, family)
            values = found.setdefault(family.name, {})
            for sample in family.samples:
                place = (sample.name, tuple(sample.labels.items()))
                values.setdefault(place, []).append(sample.value)
    made = []
    for name, family in families.items():
        metric = Metric(name, family.documentation, family.type)
        for (sample_name, labels), values_of in found[name].items():
            if not sample_name.endswith("_created"):
                metric.add_sample(sample_name, dict(labels), _joined(name, values_of))
        made.append(metric)
    return _written(made)


def _joined(name: str, values: Sequence[float]) -> float:
    if name in _LARGEST:
        return max(values)
    return sum(values) / len(values) if name in _MEAN else sum(values)


def labelled(texts: Mapping[str, str]) -> bytes:
    """All samples, with the names of their replicas."""
    families: dict[str, Metric] = {}
    for replica, text in texts.items():
        for family in text_string_to_metric_families(text):
            metric = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            for sample in family.samples:
                metric.add_sample(sample.name, {**sample.labels, "replica": replica}, sample.value)
    return _written(families.values())


def _written(metrics: Iterable[Metric]) -> bytes:
    class Given(Collector):
        def collect(self) -> Iterable[Metric]:
            return metrics

    return generate_latest(Given())
