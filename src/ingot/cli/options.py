"""Options that several commands share."""

from typing import Annotated

import typer

from ingot.engine.model.loaded_model import DEFAULT_CONTEXT

ThreadsOption = Annotated[
    int | None,
    typer.Option("-t", "--threads", help="CPU threads; default: the cores this process may use."),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        "-c",
        "--context",
        help="Tokens of the longest text; default: what the model allows, "
        f"at most {DEFAULT_CONTEXT}.",
    ),
]
KvTypeOption = Annotated[
    str,
    typer.Option(
        "--kv-type",
        help="Storage of keys and values: f32, f16, bf16, q8_0; on the CPU q4_0, on a GPU fp8.",
    ),
]
WeightsOption = Annotated[
    str,
    typer.Option(
        "--weights",
        help="map: use them where they are in the file; lock: keep them in memory, too; "
        "read: copy them into memory.",
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device", help="cpu; cuda: a GPU (needs ingot-llm[gpu]); auto: a GPU if there is one."
    ),
]
GpuLayersOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-layers",
        metavar="N",
        help="The first N layers on the GPU, the others on the CPU; auto: as many as fit. "
        "Default: all; with --device auto as many as fit.",
    ),
]
