"""The models of `ingot serve`: those named with `-m`, of a folder, of the store, and of a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ingot.cli.shared.adapter_flags import AdapterFlags
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.cli.shared.served_model_flags import EngineFlags, ModelFlags
from ingot.convert import list_models
from ingot.engine.recommended_options import recommended_options
from ingot.errors import ConfigError
from ingot.recommended import recommended_sampling
from ingot.server.catalog import model_name, split_name
from ingot.server.model_folder import find_models
from ingot.server.models_file import ModelsFile
from ingot.server.options import ServedModel


@dataclass(frozen=True, slots=True)
class ServedModels:
    """Models that are known now, and a function that looks for more, if there can be more."""

    models: tuple[ServedModel, ...]
    discover: Callable[[], Sequence[ServedModel]] | None


def served_models(
    flags: ModelFlags,
    engine: EngineFlags,
    sampling: SamplingFlags,
    adapters: AdapterFlags,
) -> ServedModels:
    """The models that the command line asks for; the default model if it names none."""
    defaults = sampling.names()
    if flags.predict is not None:
        defaults["max_tokens"] = flags.predict
    base = ServedModel(
        name="",
        path=Path(),
        engine=engine.options(adapters),
        sampling=defaults,
        chat_template=flags.template(),
        reasoning_format=flags.reasoning_format,
        pooling=flags.pooling,
        context_shift=flags.context_shift,
    )
    file = None if flags.models_file is None else ModelsFile.read(flags.models_file)

    def served(name: str, path: Path) -> ServedModel:
        own = {**recommended_sampling(path), **base.sampling}
        options = recommended_options(path, base.engine)
        made = replace(base, name=name, path=path, sampling=own, engine=options)
        return made if file is None else file.apply(name, made)

    def discover() -> list[ServedModel]:
        found = {} if flags.models_dir is None else find_models(flags.models_dir)
        if flags.serves_store:
            found = {**{model.name: model.path for model in list_models()}, **found}
        return [served(name, path) for name, path in found.items()]

    models = [served(*_named(given)) for given in flags.models or ()]
    if file is not None:
        models += file.named_models(base, locate)
    if base.engine.adapters and (
        len(models) > 1 or flags.models_dir is not None or flags.serves_store
    ):
        raise ConfigError(
            "--lora is for a server of one model; with several, give each its adapters in a "
            "--models-file"
        )
    if flags.models_dir is not None or flags.serves_store:
        return ServedModels(tuple(models), discover)
    if not models:
        models = [served(*_named(None))]
    return ServedModels(tuple(models), None)


def _named(given: str | None) -> tuple[str, Path]:
    """The name of `[NAME=]MODEL`, by default that of the file, and the file."""
    name, model = (None, None) if given is None else split_name(given)
    path = locate(model)
    return name or model_name(path), path
