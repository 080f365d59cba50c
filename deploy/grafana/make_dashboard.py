"""Write the Grafana dashboard of the server's metrics.

    python deploy/grafana/make_dashboard.py > deploy/grafana/ingot.json

A panel is a title, a unit, and queries with their legends. Rates are over Grafana's own interval,
and every query is limited to the chosen models where a metric has that label.
"""

import json
from dataclasses import dataclass
from typing import Any

WIDTH = 24  # columns of a Grafana dashboard
MODEL = '{model=~"$model"}'


@dataclass(frozen=True)
class Panel:
    """A graph, or a number (`stat`)."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]  # expression, legend
    help: str = ""
    kind: str = "timeseries"
    width: int = 8


def rate(metric: str, by: str = "model") -> str:
    """Events per second of a counter."""
    return f"sum by ({by}) (rate({metric}{MODEL}[$__rate_interval]))"


def gauge(metric: str) -> str:
    """The sum of a gauge for each model."""
    return f"sum by (model) ({metric}{MODEL})"


def quantiles(histogram: str, by: str = "model", selector: str = MODEL) -> tuple[Any, ...]:
    """The median and the slowest twentieth and hundredth of a histogram."""
    buckets = f"sum by (le, {by}) (rate({histogram}_bucket{selector}[$__rate_interval]))"
    return tuple(
        (f"histogram_quantile({share}, {buckets})", f"{{{{{by}}}}} p{round(share * 100)}")
        for share in (0.5, 0.95, 0.99)
    )


ROWS: dict[str, list[Panel]] = {
    "Overview": [
        Panel(
            "Generated tokens per second",
            "short",
            ((f"sum({rate('ingot_generated_tokens_total')})", "tokens/s"),),
            kind="stat",
            width=6,
        ),
        Panel("Running", "short", ((f"sum(ingot_running{MODEL})", ""),), kind="stat", width=6),
        Panel("Waiting", "short", ((f"sum(ingot_waiting{MODEL})", ""),), kind="stat", width=6),
        Panel(
            "Open models", "short", ((f"sum(ingot_model_loaded{MODEL})", ""),), kind="stat", width=6
        ),
    ],
    "Latency": [
        Panel(
            "Time to first token",
            "s",
            quantiles("ingot_time_to_first_token_seconds"),
            "From the arrival of a request to its first token: the queue and prefill.",
        ),
        Panel(
            "Time between tokens",
            "s",
            quantiles("ingot_time_between_tokens_seconds"),
            "Between two tokens of a completion: decode, and prefill of other requests.",
        ),
        Panel(
            "Time of requests",
            "s",
            quantiles("ingot_request_seconds", by="path", selector=""),
            "From a request to the end of its response.",
        ),
    ],
    "Throughput": [
        Panel(
            "Tokens per second",
            "short",
            (
                (rate("ingot_generated_tokens_total"), "{{model}} generated"),
                (rate("ingot_prompt_tokens_total"), "{{model}} prompt"),
            ),
        ),
        Panel(
            "Requests per second",
            "reqps",
            (
                (
                    "sum by (status) (rate(ingot_requests_total[$__rate_interval]))",
                    "{{status}}",
                ),
            ),
            "By HTTP status.",
        ),
        Panel(
            "Batch",
            "short",
            (
                (
                    f"{rate('ingot_generated_tokens_total')} / {rate('ingot_steps_total')}",
                    "{{model}}",
                ),
                (gauge("ingot_batch_size"), "{{model}} since the start"),
            ),
            "Generated tokens per step of the model. The more, the better the weights are used.",
        ),
        Panel(
            "Requests in the engine",
            "short",
            (
                (gauge("ingot_running"), "{{model}} running"),
                (gauge("ingot_waiting"), "{{model}} waiting"),
            ),
        ),
        Panel("Steps per second", "short", ((rate("ingot_steps_total"), "{{model}}"),)),
        Panel(
            "Preemptions per second",
            "short",
            ((rate("ingot_preemptions_total"), "{{model}}"),),
            "Requests whose KV cache was given to others; they are read again later.",
        ),
    ],
    "KV cache and speculation": [
        Panel(
            "KV cache",
            "percentunit",
            (
                (f"{gauge('ingot_blocks_held')} / {gauge('ingot_blocks')}", "{{model}} running"),
                (f"{gauge('ingot_blocks_kept')} / {gauge('ingot_blocks')}", "{{model}} reusable"),
            ),
            "Share of the blocks.",
        ),
        Panel(
            "Prompt tokens from the prefix cache",
            "percentunit",
            (
                (
                    f"{rate('ingot_reused_tokens_total')} / {rate('ingot_prompt_tokens_total')}",
                    "{{model}}",
                ),
            ),
        ),
        Panel(
            "Accepted guesses",
            "percentunit",
            (
                (
                    f"{rate('ingot_accepted_tokens_total')} / {rate('ingot_guessed_tokens_total')}",
                    "{{model}}",
                ),
            ),
            "Of speculation; no data without it.",
        ),
        Panel(
            "Tokens per step of a text",
            "short",
            (
                (gauge("ingot_tokens_per_step"), "{{model}}, since the start"),
                (
                    f"{rate('ingot_generated_tokens_total')} / {rate('ingot_text_steps_total')}",
                    "{{model}}, now",
                ),
            ),
            "More than one if guesses were accepted.",
        ),
    ],
    "Models and GPU": [
        Panel("Open models", "bool", ((gauge("ingot_model_loaded"), "{{model}}"),)),
        Panel(
            "Copies of weights",
            "bytes",
            ((gauge("ingot_copied_bytes"), "{{model}}"),),
            "Memory for weights in the order in which the CPU reads them, beside the mapped file.",
        ),
        Panel(
            "Kernels and captures",
            "short",
            (
                (gauge("ingot_compilations_total"), "{{model}} kernels"),
                (gauge("ingot_captures_total"), "{{model}} captures"),
            ),
            "Made when a model was opened on a GPU.",
        ),
        Panel(
            "Compiled while a request waited",
            "short",
            (
                (gauge("ingot_compilations_after_ready_total"), "{{model}} kernels"),
                (gauge("ingot_captures_after_ready_total"), "{{model}} captures"),
            ),
            "Must be 0; `ingot warm` compiles ahead of time.",
        ),
    ],
}


def panel_json(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """A panel as Grafana reads it."""
    height = 4 if panel.kind == "stat" else 8
    return {
        "id": number,
        "title": panel.title,
        "description": panel.help,
        "type": panel.kind,
        "datasource": {"type": "prometheus", "uid": "prometheus"},
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    """All panels in rows, three or four beside each other."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "title": title, "type": "row", "gridPos": place})
        y, x, height = y + 1, 0, 0
        for panel in row:
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            panels.append(panel_json(panel, len(panels) + 1, x, y))
            x, height = x + panel.width, panels[-1]["gridPos"]["h"]
        y += height
    return {
        "uid": "ingot",
        "title": "Ingot",
        "description": "Requests, tokens, latency and the KV cache of `ingot serve`.",
        "tags": ["ingot"],
        "editable": True,
        "refresh": "10s",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "model",
                    "label": "Model",
                    "type": "query",
                    "datasource": {"type": "prometheus", "uid": "prometheus"},
                    "query": "label_values(ingot_model_loaded, model)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "current": {"text": "All", "value": "$__all"},
                }
            ]
        },
        "panels": panels,
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=2))
