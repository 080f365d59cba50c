"""The measurements of llama-server under its names, for dashboards made for it.

They have no labels: what several models do is added up.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ingot.engine import Timings
from ingot.server.catalog import Catalog


class LlamaCollector(Collector):
    """Counts of the engines, and times of the texts that have ended."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._prompt_seconds = self._written_seconds = 0.0
        self._prompt_tokens = self._written_tokens = 0
        self._longest = 0

    def observe(self, timings: Timings) -> None:
        """Count a text that has ended."""
        self._prompt_seconds += timings.prompt_seconds
        self._prompt_tokens += timings.prompt_tokens - timings.reused_tokens
        self._written_seconds += timings.generation_seconds
        self._written_tokens += timings.generated_tokens
        self._longest = max(self._longest, timings.prompt_tokens + timings.generated_tokens)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Read them."""
        stats = [entry.llm.stats for entry in self._catalog.entries.values() if entry.llm]
        steps = sum(model.steps for model in stats)
        written = sum(model.generated_tokens for model in stats)
        for name, text, count in (
            ("prompt_tokens", "Tokens of prompts read.", sum(m.prompt_tokens for m in stats)),
            ("prompt_seconds", "Seconds that prompts took.", self._prompt_seconds),
            ("tokens_predicted", "Tokens written.", written),
            ("tokens_predicted_seconds", "Seconds that they took.", self._written_seconds),
            ("n_decode", "Runs of the model.", steps),
        ):
            yield CounterMetricFamily(f"llamacpp:{name}", text, value=count)
        for name, text, value in (
            (
                "prompt_tokens_seconds",
                "Tokens of prompts read per second.",
                _each(self._prompt_tokens, self._prompt_seconds),
            ),
            (
                "predicted_tokens_seconds",
                "Tokens written per second.",
                _each(self._written_tokens, self._written_seconds),
            ),
            ("n_tokens_max", "Tokens of the longest text so far.", self._longest),
            ("requests_processing", "Texts being written.", sum(m.running for m in stats)),
            ("requests_deferred", "Requests that wait.", sum(m.waiting for m in stats)),
            ("n_busy_slots_per_decode", "Texts in a run on average.", _each(written, steps)),
        ):
            yield GaugeMetricFamily(f"llamacpp:{name}", text, value=value)


def _each(amount: float, parts: float) -> float:
    return amount / parts if parts else 0.0
