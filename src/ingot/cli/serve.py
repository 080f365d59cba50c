"""`ingot serve`: an HTTP server for OpenAI, Anthropic and llama-server clients."""

from pathlib import Path
from typing import Annotated

import typer

from ingot import store
from ingot.cli.shared.find_model import MODEL_HELP, locate
from ingot.cli.shared.model_options import (
    ContextOption,
    DeviceOption,
    GpuLayersOption,
    KvTypeOption,
    PrecisionOption,
    ThreadsOption,
    WeightsOption,
)
from ingot.cli.shared.open_model import parse_gpu_layers
from ingot.cli.shared.output import notice, read_text
from ingot.config import config
from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from ingot.recommended import recommended_sampling

_LIMITS, _SAFETY = "Limits", "Access"


def command(
    *,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--model",
            metavar="[NAME=]MODEL",
            help=f"{MODEL_HELP} May be repeated; the first is opened now, the others on first use.",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("-p", "--port", help="Port; 0 picks a free one.")] = 8080,
    threads: ThreadsOption = None,
    context: ContextOption = None,
    kv_type: KvTypeOption = "f16",
    weights: WeightsOption = "map",
    precision: PrecisionOption = None,
    device: DeviceOption = "cpu",
    gpu_layers: GpuLayersOption = None,
    parallel: Annotated[
        int, typer.Option("-np", "--parallel", help="Requests decoded at once.")
    ] = EngineOptions().max_running,
    queue: Annotated[
        int,
        typer.Option(
            "--queue", help="Requests that may wait; one more gets a 429.", rich_help_panel=_LIMITS
        ),
    ] = EngineOptions().max_queue,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", help="Maximum tokens of an answer. [no limit]", rich_help_panel=_LIMITS
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            help="Maximum seconds for an answer. [no limit]",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_body: Annotated[
        int,
        typer.Option(
            "--max-body", help="Maximum bytes of a request body.", rich_help_panel=_LIMITS
        ),
    ] = 16 << 20,
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections", help="Maximum open connections.", rich_help_panel=_LIMITS
        ),
    ] = 1024,
    idle_unload: Annotated[
        float | None,
        typer.Option(
            "--idle-unload",
            help="Close a model after this many seconds without requests. [never]",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    shutdown_grace: Annotated[
        float,
        typer.Option(
            "--shutdown-grace",
            help="Seconds that running answers may take when the server stops.",
            rich_help_panel=_LIMITS,
        ),
    ] = 30.0,
    step_timeout: Annotated[
        float | None,
        typer.Option(
            "--step-timeout",
            help="Seconds after which a model step counts as hung.",
            rich_help_panel=_LIMITS,
        ),
    ] = EngineOptions().step_timeout,
    api_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key",
            help="API key that clients must send; may be repeated. Also: INGOT_API_KEY.",
            rich_help_panel=_SAFETY,
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file", help="A file with one API key per line.", rich_help_panel=_SAFETY
        ),
    ] = None,
    allow_open: Annotated[
        bool,
        typer.Option(
            "--allow-open",
            help="Allow other machines to connect without an API key.",
            rich_help_panel=_SAFETY,
        ),
    ] = False,
    cors_origins: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            help="Origin whose web pages may send requests; `*`: all. May be repeated.",
            rich_help_panel=_SAFETY,
        ),
    ] = None,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            help="Extra host name that clients may use without an API key; `*`: any. May be "
            "repeated.",
            rich_help_panel=_SAFETY,
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            "--tls-certificate", help="TLS certificate, a PEM file.", rich_help_panel=_SAFETY
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", help="TLS private key, a PEM file.", rich_help_panel=_SAFETY),
    ] = None,
    strict_parameters: Annotated[
        bool,
        typer.Option(
            "--strict-parameters",
            help="Refuse requests with unknown parameters instead of warning about them.",
        ),
    ] = False,
    slots_folder: Annotated[
        Path | None,
        typer.Option(
            "--slot-save-path", help="Folder in which /slots saves KV caches. [saving is off]"
        ),
    ] = None,
    slot_save_limit: Annotated[
        int,
        typer.Option(
            "--slot-save-limit",
            help="Maximum bytes of all saved KV caches.",
            rich_help_panel=_LIMITS,
        ),
    ] = 16 << 30,
    slot_save_files: Annotated[
        int,
        typer.Option(
            "--slot-save-files", help="Maximum number of saved KV caches.", rich_help_panel=_LIMITS
        ),
    ] = 256,
) -> None:
    """Serve models over HTTP: OpenAI's, Anthropic's and llama-server's APIs, and a chat page at /.

    Each request is logged to stderr. Ctrl-C or SIGTERM lets running answers finish; a second
    signal stops them, a third ends the process.
    """
    try:
        from ingot.server.catalog import model_name  # noqa: PLC0415 (an extra)
        from ingot.server.options import ServedModel, ServerOptions  # noqa: PLC0415
        from ingot.server.process import serve  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the server needs the package {error.name}: pip install 'ingot-llm[server]'"
        ) from None
    engine = EngineOptions(
        threads=threads,
        context=context,
        kv_type=kv_type,
        weights=weights,
        precision=precision,
        device=device,
        gpu_layers=parse_gpu_layers(gpu_layers),
        max_running=parallel,
        max_queue=queue,
        step_timeout=step_timeout,
    )
    served = []
    asked: list[str | None] = [*models] if models else [None]
    for given in asked:
        name, path = _named(given)
        served.append(
            ServedModel(
                name=name or model_name(path),
                path=path,
                engine=engine,
                sampling=recommended_sampling(path),
            )
        )
    options = ServerOptions(
        models=tuple(served),
        host=host,
        port=port,
        api_keys=_keys(api_keys, api_key_file),
        allow_open=allow_open,
        cors_origins=tuple(cors_origins or ()),
        allowed_hosts=tuple(allowed_hosts or ()),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        max_body=max_body,
        max_connections=max_connections,
        max_tokens=max_tokens,
        time_limit=time_limit,
        idle_unload=idle_unload,
        shutdown_grace=shutdown_grace,
        strict_parameters=strict_parameters,
        slots_folder=slots_folder,
        slot_save_limit=slot_save_limit,
        slot_save_files=slot_save_files,
    )
    serve(options, notice)


def _named(given: str | None) -> tuple[str | None, Path]:
    """Split `NAME=MODEL` into the name (None if absent) and the file."""
    if given is None or "=" not in given or Path(given).exists() or store.is_remote(given):
        return None, locate(given)
    name, _, model = given.partition("=")
    if not name:
        raise ConfigError(f"{given!r} has no name before the equals sign; use NAME=MODEL")
    return name, locate(model)


def _keys(given: list[str] | None, file: Path | None) -> tuple[str, ...]:
    keys = list(given or ())
    if (from_environment := config().api_key) is not None:
        keys.append(from_environment)
    if file is not None:
        lines = read_text(file).splitlines()
        keys += [line.strip() for line in lines if line.strip()]
        if not keys:
            raise ConfigError(f"{file} contains no API key")
    return tuple(keys)
