"""`ingot serve`: an HTTP server for OpenAI, Anthropic, Ollama and llama-server clients."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.shared.adapter_flags import AdapterFlags, AdapterLoadingFlags
from ingot.cli.shared.flags import takes_flags
from ingot.cli.shared.output import notice
from ingot.cli.shared.ray_flags import RayFlags
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.cli.shared.served_model_flags import EngineFlags, ModelFlags
from ingot.cli.shared.server_flags import AccessFlags, LimitFlags
from ingot.errors import ConfigError


@takes_flags
def command(
    address: Annotated[
        str | None,
        typer.Argument(metavar="[ADDRESS]", help="With --ray: the address of a Ray cluster."),
    ] = None,
    *,
    model: ModelFlags,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("-p", "--port", help="Port; 0 picks a free one.")] = 8080,
    engine: EngineFlags,
    adapters: AdapterFlags,
    loading: AdapterLoadingFlags,
    sampling: SamplingFlags,
    limits: LimitFlags,
    access: AccessFlags,
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
    batches_folder: Annotated[
        Path | None,
        typer.Option(
            "--batches-path",
            help="Folder in which files and batches survive a restart. [in memory]",
        ),
    ] = None,
    mcp_config: Annotated[
        Path | None,
        typer.Option(
            "--mcp-config",
            help="JSON file with MCP servers whose tools clients may use. [MCP is off]",
        ),
    ] = None,
    cluster: RayFlags,
) -> None:
    """Serve models over HTTP: the APIs of OpenAI, Anthropic, Ollama and llama-server; a page at /.

    Sampling options are the defaults of requests that do not set them. Each request is logged to
    stderr. Ctrl-C or SIGTERM lets running answers finish; a second signal stops them, a third ends
    the process.
    """
    cluster = cluster.at(address)
    try:
        from ingot.cli.shared.served_models import served_models  # noqa: PLC0415 (an extra)
        from ingot.server.mcp_config import read_mcp_config  # noqa: PLC0415
        from ingot.server.options import ServerOptions  # noqa: PLC0415
        from ingot.server.process import serve  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the server needs the package {error.name}: pip install 'ingot-llm[server]'"
        ) from None
    found = served_models(model, engine, sampling, adapters)
    options = ServerOptions(
        models=found.models,
        discover=found.discover,
        allow_downloads=model.allow_downloads,
        allow_deletes=model.allow_deletes,
        adapters_folder=loading.folder,
        models_max=model.models_max,
        models_memory=None if model.models_memory is None else int(model.models_memory * 1e9),
        host=host,
        port=port,
        strict_parameters=strict_parameters,
        slots_folder=slots_folder,
        batches_folder=batches_folder,
        mcp_servers=() if mcp_config is None else read_mcp_config(mcp_config),
        **asdict(limits),
        **access.options(),
    )
    if cluster.wanted:
        cluster.serve(options, model.models or [], engine.device, notice)
    else:
        serve(options, notice)
