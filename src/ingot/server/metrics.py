"""Metrics: what a server measures, in Prometheus's text format.

Counts of the engine are read when they are asked for; requests are counted as they end.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from ingot.engine.stats import GAP_BOUNDS
from ingot.server.call import Call
from ingot.server.catalog import Catalog
from ingot.server.llama_metrics import LlamaCollector

_FIRST_TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_REQUEST_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

# Of the engine's statistics: name here, name there, what it is.
_GAUGES = (
    ("waiting", "Requests that wait for their turn."),
    ("running", "Texts that are being written."),
    ("blocks", "Blocks of the cache."),
    ("blocks_held", "Blocks of the cache that running texts hold."),
    ("blocks_kept", "Blocks of the cache that are kept for texts to come."),
)
_COUNTERS = (
    ("steps", "Runs of the model."),
    ("prompt_tokens", "Tokens of prompts that were read."),
    ("reused_tokens", "Tokens of prompts that were found in the cache."),
    ("generated_tokens", "Tokens that were written."),
    ("preemptions", "Texts that gave their place in the cache up for a while."),
)


class Metrics:
    """The measurements of one server."""

    def __init__(self, catalog: Catalog) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(catalog))
        self._llama = LlamaCollector(catalog)
        self._registry.register(self._llama)
        self._requests = Counter(
            "ingot_requests",
            "HTTP requests.",
            ("method", "path", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "ingot_request_seconds",
            "Seconds from a request to the end of its answer.",
            ("path",),
            buckets=_REQUEST_BOUNDS,
            registry=self._registry,
        )
        self._first_token = Histogram(
            "ingot_time_to_first_token_seconds",
            "Seconds from a request's arrival at the engine to its first token.",
            ("model",),
            buckets=_FIRST_TOKEN_BOUNDS,
            registry=self._registry,
        )

    def observe(self, call: Call, method: str, path: str, status: int, seconds: float) -> None:
        """Count an answer; `path` is that of the endpoint, not what was asked for."""
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        for timings in call.timings:
            self._llama.observe(timings)
            if timings.generated_tokens:
                waited = timings.queue_seconds + timings.prompt_seconds
                self._first_token.labels(call.model or "").observe(waited)

    def text(self) -> bytes:
        """All of them."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """The engines' own counts."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def collect(
        self,
    ) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        """Read them."""
        open_models = [
            (entry.name, entry.llm)
            for entry in self._catalog.entries.values()
            if entry.llm is not None
        ]
        loaded = GaugeMetricFamily(
            "ingot_model_loaded", "Whether a model is open.", labels=["model"]
        )
        for entry in self._catalog.entries.values():
            loaded.add_metric([entry.name], float(entry.llm is not None))
        yield loaded
        stats = [(name, llm.stats) for name, llm in open_models]
        for field, text in _GAUGES:
            gauge = GaugeMetricFamily(f"ingot_{field}", text, labels=["model"])
            for name, values in stats:
                gauge.add_metric([name], getattr(values, field))
            yield gauge
        for field, text in _COUNTERS:
            counter = CounterMetricFamily(f"ingot_{field}", text, labels=["model"])
            for name, values in stats:
                counter.add_metric([name], getattr(values, field))
            yield counter
        batch = GaugeMetricFamily(
            "ingot_batch_size",
            "Tokens a run of the model has written on average.",
            labels=["model"],
        )
        for name, values in stats:
            batch.add_metric([name], values.generated_tokens / max(values.steps, 1))
        yield batch
        gaps = HistogramMetricFamily(
            "ingot_time_between_tokens_seconds",
            "Seconds from a token of a text to its next one.",
            labels=["model"],
        )
        for name, llm in open_models:
            found = llm.engine.token_gaps
            total, buckets = 0, []
            for bound, count in zip((*map(str, GAP_BOUNDS), "+Inf"), found.counts, strict=True):
                total += count
                buckets.append((bound, float(total)))
            gaps.add_metric([name], buckets, sum_value=found.seconds)
        yield gaps
