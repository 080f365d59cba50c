"""`ingot batch`: a file of requests in OpenAI's batch format, answered into a folder."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingot.bar import Bar
from ingot.cli.shared.adapter_flags import AdapterFlags
from ingot.cli.shared.flags import takes_flags
from ingot.cli.shared.interrupts import cancel_on_interrupt
from ingot.cli.shared.output import notice
from ingot.cli.shared.ray_flags import RayFlags
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.cli.shared.served_model_flags import EngineFlags, ModelFlags
from ingot.errors import ConfigError

if TYPE_CHECKING:
    from ingot.server.batches.offline import Asking, Counts, OfflineBatch


@takes_flags
def command(
    source: Annotated[
        Path, typer.Argument(metavar="REQUESTS", help="A .jsonl or .parquet file of requests.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the answers go.")],
    *,
    model: ModelFlags,
    engine: EngineFlags,
    adapters: AdapterFlags,
    sampling: SamplingFlags,
    cluster: RayFlags,
) -> None:
    """Answer a file of requests: chats, completions, embeddings, scores.

    Requests and answers have OpenAI's batch format. Answers go to output.jsonl, in the order of the
    requests, and requests that failed to errors.jsonl. After a crash or Ctrl-C, the same command
    goes on where it ended.
    """
    try:
        from ingot.cli.shared.served_models import served_models  # noqa: PLC0415 (an extra)
        from ingot.server.batches.offline import OfflineBatch, asking  # noqa: PLC0415
        from ingot.server.batches.row_files import RowFile  # noqa: PLC0415
        from ingot.server.options import ServerOptions  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"batches need the package {error.name}: pip install 'ingot-llm[server]'"
        ) from None
    rows = RowFile(source)
    found = served_models(model, engine, sampling, adapters)
    options = ServerOptions(
        models=found.models,
        discover=found.discover,
        models_max=model.models_max,
        models_memory=None if model.models_memory is None else int(model.models_memory * 1e9),
        access_log=False,
    )
    batch = OfflineBatch(rows, folder, [f"{each.name}={each.path}" for each in found.models])
    if cluster.wanted:
        server = cluster.workers(options, model.models or [], engine.device)
    else:
        server = asking(options)
    try:
        counts = batch.begin() or asyncio.run(_answer(batch, server))
    except asyncio.CancelledError:
        notice("stopped; the same command goes on from here")
        raise KeyboardInterrupt from None
    failed = f", {counts.failed} failed (errors.jsonl)" if counts.failed else ""
    notice(f"{counts.rows} requests: {counts.succeeded} answered{failed}, in {folder}")


async def _answer(batch: "OfflineBatch", server: "Asking") -> "Counts":
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    with (
        Bar("answering", "requests") as bar,
        cancel_on_interrupt(lambda: loop.call_soon_threadsafe(task.cancel)),
    ):
        async with server as (ask, at_once):
            return await batch.run(ask, at_once, bar)
