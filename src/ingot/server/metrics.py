"""Metrics in Prometheus's text format, under Ingot's names and under llama-server's.

The engine's counters are read when `/metrics` is asked for; requests are counted as they end.
llama-server's metrics have no labels: they are sums over all models.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from ingot.engine import Timings
from ingot.engine.stats import GAP_BOUNDS, EngineStats
from ingot.server.catalog import Catalog
from ingot.server.http.access_log import AccessRecord

_FIRST_TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_REQUEST_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

# Fields of the engine's statistics, with their help texts.
_GAUGES = (
    ("waiting", "Requests in the queue."),
    ("running", "Requests that are running."),
    ("blocks", "Blocks of the KV cache."),
    ("blocks_held", "KV cache blocks that running requests hold."),
    ("blocks_kept", "KV cache blocks kept for reuse by later requests."),
    ("copied_bytes", "Bytes of weights copied in the order in which the CPU reads them."),
)
_COUNTERS = (
    ("steps", "Steps of the model."),
    ("prompt_tokens", "Prompt tokens."),
    ("reused_tokens", "Prompt tokens found in the prefix cache."),
    ("generated_tokens", "Generated tokens."),
    ("text_steps", "Steps that gave a request tokens, summed over the requests."),
    ("guessed_tokens", "Tokens that speculation guessed."),
    ("accepted_tokens", "Guessed tokens that were right."),
    ("preemptions", "Preempted requests."),
    ("compilations", "GPU kernels compiled or read from the cache on the disk."),
    ("captures", "Pieces of GPU steps captured."),
    ("compilations_after_ready", "GPU kernels that a request had to wait for."),
    ("captures_after_ready", "Captures that a request had to wait for."),
)
# Names that gateways of clusters ask for (llm-d, the inference extension of Kubernetes), which are
# vLLM's.
_VLLM_GAUGES = (
    ("num_requests_waiting", "Requests in the queue."),
    ("num_requests_running", "Requests that are running."),
    ("kv_cache_usage_perc", "Share of the KV cache that running requests hold, 0 to 1."),
)
# Averages since the start: one of the counters by another.
_RATIOS = (
    ("batch_size", "Requests that a step gave tokens, on average.", "text_steps", "steps"),
    (
        "tokens_per_step",
        "Tokens that a step gave a request, on average: more than 1 if guesses are right.",
        "generated_tokens",
        "text_steps",
    ),
)


class Metrics:
    """The metrics of one server."""

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
            "Seconds from a request to the end of its response.",
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

    def observe(
        self, record: AccessRecord, method: str, path: str, status: int, seconds: float
    ) -> None:
        """Count a response; `path` is the endpoint's route, not the URL."""
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        for timings in record.timings:
            self._llama.observe(timings)
            if timings.generated_tokens:
                waited = timings.queue_seconds + timings.prompt_seconds
                self._first_token.labels(record.model or "").observe(waited)

    def text(self) -> bytes:
        """All metrics."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """The engines' own counters."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def collect(
        self,
    ) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        """Read the counters."""
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
        for field, text in _VLLM_GAUGES:
            gauge = GaugeMetricFamily(f"vllm:{field}", text, labels=["model_name"])
            for name, values in stats:
                gauge.add_metric([name], _vllm_value(field, values))
            yield gauge
        for field, text in _COUNTERS:
            counter = CounterMetricFamily(f"ingot_{field}", text, labels=["model"])
            for name, values in stats:
                counter.add_metric([name], getattr(values, field))
            yield counter
        for field, text, of, per in _RATIOS:
            gauge = GaugeMetricFamily(f"ingot_{field}", text, labels=["model"])
            for name, values in stats:
                gauge.add_metric([name], ratio(getattr(values, of), getattr(values, per)))
            yield gauge
        gaps = HistogramMetricFamily(
            "ingot_time_between_tokens_seconds",
            "Seconds between two tokens of a completion.",
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


def _vllm_value(field: str, stats: EngineStats) -> float:
    match field:
        case "num_requests_waiting":
            return stats.waiting
        case "num_requests_running":
            return stats.running
        case _:
            return ratio(stats.blocks_held, stats.blocks)


class LlamaCollector(Collector):
    """llama-server's metrics: counters of the engines, timings of ended requests."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._prompt_seconds = self._generated_seconds = 0.0
        self._prompt_tokens = self._generated_tokens = 0
        self._longest = 0

    def observe(self, timings: Timings) -> None:
        """Count a request that has ended."""
        self._prompt_seconds += timings.prompt_seconds
        self._prompt_tokens += timings.prompt_tokens - timings.reused_tokens
        self._generated_seconds += timings.generation_seconds
        self._generated_tokens += timings.generated_tokens
        self._longest = max(self._longest, timings.prompt_tokens + timings.generated_tokens)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Read the counters."""
        stats = [entry.llm.stats for entry in self._catalog.entries.values() if entry.llm]
        steps = sum(model.steps for model in stats)
        written = sum(model.generated_tokens for model in stats)
        busy = sum(model.text_steps for model in stats)
        for name, text, count in (
            ("prompt_tokens", "Prompt tokens processed.", sum(m.prompt_tokens for m in stats)),
            ("prompt_seconds", "Seconds of prefill.", self._prompt_seconds),
            ("tokens_predicted", "Generated tokens.", written),
            ("tokens_predicted_seconds", "Seconds of decode.", self._generated_seconds),
            ("n_decode", "Steps of the model.", steps),
        ):
            yield CounterMetricFamily(f"llamacpp:{name}", text, value=count)
        for name, text, value in (
            (
                "prompt_tokens_seconds",
                "Prompt tokens per second.",
                ratio(self._prompt_tokens, self._prompt_seconds),
            ),
            (
                "predicted_tokens_seconds",
                "Generated tokens per second.",
                ratio(self._generated_tokens, self._generated_seconds),
            ),
            ("n_tokens_max", "Tokens of the longest sequence so far.", self._longest),
            ("requests_processing", "Requests that are running.", sum(m.running for m in stats)),
            ("requests_deferred", "Requests in the queue.", sum(m.waiting for m in stats)),
            ("n_busy_slots_per_decode", "Sequences per step, on average.", ratio(busy, steps)),
        ):
            yield GaugeMetricFamily(f"llamacpp:{name}", text, value=value)


def ratio(amount: float, parts: float) -> float:
    """The quotient, or 0 if there are no parts."""
    return amount / parts if parts else 0.0
