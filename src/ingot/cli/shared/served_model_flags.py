"""Options of `ingot serve` about its models: which they are, how they run, what they default to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ingot.cli.shared.adapter_flags import AdapterFlags
from ingot.cli.shared.completion import complete_model
from ingot.cli.shared.find_model import MODEL_HELP
from ingot.cli.shared.model_options import (
    DraftOption,
    GpuLayersOption,
    GpuSplitOption,
    KvTypeOption,
    NumaOption,
    ParallelOption,
    PinThreadsOption,
    PrecisionOption,
    ServedContextOption,
    ServedDeviceOption,
    SpeculationOption,
    ThreadsOption,
    WeightsOption,
)
from ingot.cli.shared.open_model import guess_fields, parse_gpu_layers, parse_gpu_split
from ingot.cli.shared.output import read_text
from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from ingot.models import Pooling
from ingot.reply.style import ReasoningFormat
from ingot.tokenizer.chat_template import CHATML

_MODELS = "Models"


def _option(*names: str, text: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=_MODELS, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """Fields of `EngineOptions`."""

    threads: ThreadsOption = None
    context: ServedContextOption = None
    kv_type: KvTypeOption = "f16"
    weights: WeightsOption = "auto"
    precision: PrecisionOption = None
    numa: NumaOption = "auto"
    pin_threads: PinThreadsOption = False
    device: ServedDeviceOption = None
    gpu_layers: GpuLayersOption = None
    gpu_split: GpuSplitOption = None
    cache_tokens: Annotated[
        int | None,
        typer.Option(
            "--cache-tokens",
            help="Tokens in the KV cache, of all requests. Default: four contexts, at most a "
            "quarter of the memory; on a GPU 2048 for each request that may run, at most half.",
        ),
    ] = None
    chunk_tokens: Annotated[
        int | None,
        typer.Option(
            "--chunk-tokens",
            help="Prompt tokens that are read between two tokens of running answers. Default: "
            "128; 256 to 1024 on a GPU, by what steps take there.",
        ),
    ] = None
    speculation: SpeculationOption = "auto"
    draft: DraftOption = None
    parallel: ParallelOption = None
    queue: Annotated[
        int,
        typer.Option(
            "--queue", help="Requests that may wait; one more gets a 429.", rich_help_panel="Limits"
        ),
    ] = EngineOptions().max_queue
    step_timeout: Annotated[
        float | None,
        typer.Option(
            "--step-timeout",
            help="Seconds after which a model step counts as hung.",
            rich_help_panel="Limits",
        ),
    ] = EngineOptions().step_timeout
    engine_process: Annotated[
        bool | None,
        typer.Option(
            "--engine-process/--no-engine-process",
            help="Run each model in a process for itself, which does not wait for HTTP. "
            "Default: a model on a GPU, of 1 GiB or more.",
        ),
    ] = None

    def options(self, adapters: AdapterFlags) -> EngineOptions:
        """How the engines of the models are set up."""
        return EngineOptions(
            **adapters.fields(),
            threads=self.threads,
            context=self.context,
            kv_type=self.kv_type,
            weights=self.weights,
            precision=self.precision,
            numa=self.numa,
            pin_threads=self.pin_threads,
            device=self.device or "cpu",
            gpu_layers=parse_gpu_layers(self.gpu_layers),
            gpu_split=parse_gpu_split(self.gpu_split),
            cache_tokens=self.cache_tokens,
            chunk_tokens=self.chunk_tokens,
            **guess_fields(self.speculation, self.draft),
            max_running=self.parallel,
            max_queue=self.queue,
            step_timeout=self.step_timeout,
            engine_process=self.engine_process,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """Which models are served, and what requests to them default to."""

    models: Annotated[
        list[str] | None,
        _option(
            "-m",
            "--model",
            metavar="[NAME=]MODEL",
            autocompletion=complete_model,
            text=f"{MODEL_HELP} May be repeated; the first is opened now, the others on first use.",
        ),
    ] = None
    models_dir: Annotated[
        Path | None,
        _option(
            "--models-dir",
            text="A folder whose models are served, each opened on first use. New files are found "
            "while the server runs.",
        ),
    ] = None
    store: Annotated[
        bool,
        _option("--store", text="Serve all models of `ingot list`, each opened on first use."),
    ] = False
    allow_downloads: Annotated[
        bool,
        _option(
            "--allow-downloads",
            text="Let clients and the page download models of the hub and of Ollama; implies "
            "--store.",
        ),
    ] = False
    allow_deletes: Annotated[
        bool,
        _option(
            "--allow-deletes",
            text="Let clients delete models of `ingot list` from the disk; implies --store.",
        ),
    ] = False
    models_file: Annotated[
        Path | None,
        _option("--models-file", text="A TOML file with options of single models."),
    ] = None
    models_max: Annotated[
        int | None,
        _option("--models-max", text="Models open at once. [as many as the memory has room for]"),
    ] = None
    models_memory: Annotated[
        float | None,
        _option("--models-memory", text="GB of memory for all open models. [what is available]"),
    ] = None
    context_shift: Annotated[
        bool,
        _option(
            "--context-shift",
            text="Let an answer that fills the context drop the middle of the text and continue.",
        ),
    ] = False
    chat_template: Annotated[
        str | None,
        _option("--chat-template", text="A Jinja template instead of the model's, or `chatml`."),
    ] = None
    chat_template_file: Annotated[
        Path | None, _option("--chat-template-file", text="A file with such a template.")
    ] = None
    reasoning_format: Annotated[
        ReasoningFormat,
        _option(
            "--reasoning-format",
            text="auto or deepseek: reasoning is separate from the answer; none: it stays in it.",
        ),
    ] = "auto"
    pooling: Annotated[
        Pooling | None,
        _option("--pooling", text="Pooling of embeddings. [what the file says]"),
    ] = None
    predict: Annotated[
        int | None,
        _option(
            "-n",
            "--n-predict",
            "--predict",
            text="Tokens of an answer whose request gives no limit; -1: no limit. [no limit]",
        ),
    ] = None

    @property
    def serves_store(self) -> bool:
        """Whether all models of the store are served."""
        return self.store or self.allow_downloads or self.allow_deletes

    def template(self) -> str | None:
        """The source of the chat template; None: the model's own."""
        if self.chat_template is not None and self.chat_template_file is not None:
            raise ConfigError("use either --chat-template or --chat-template-file, not both")
        source = self.chat_template
        if self.chat_template_file is not None:
            source = read_text(self.chat_template_file)
        if source == "chatml":
            return CHATML
        if source is not None and "{" not in source:
            raise ConfigError(
                f"the chat template {source[:40]!r} has no Jinja expression; pass the source of a "
                "template, or `chatml`"
            )
        return source
