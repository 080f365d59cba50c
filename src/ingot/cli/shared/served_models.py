"""The models of `ingot serve`: those named with `-m`, of a folder, of the store, and of a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ingot import store
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.cli.shared.served_model_flags import EngineFlags, ModelFlags
from ingot.errors import ConfigError
from ingot.recommended import recommended_sampling
from ingot.server.catalog import model_name
from ingot.server.model_folder import find_models
from ingot.server.models_file import ModelsFile
from ingot.server.options import ServedModel


@dataclass(frozen=True, slots=True)
class ServedModels:
    """Models that are known now, and a function that looks for more, if there can be more."""

    models: tuple[ServedModel, ...]
    discover: Callable[[], Sequence[ServedModel]] | None


def served_models(flags: ModelFlags, engine: EngineFlags, sampling: SamplingFlags) -> ServedModels:
    """The models that the command line asks for; the default model if it names none."""
    defaults = sampling.names()
    if flags.predict is not None:
        defaults["max_tokens"] = flags.predict
    base = ServedModel(
        name="",
        path=Path(),
        engine=engine.options(),
        sampling=defaults,
        chat_template=flags.template(),
        reasoning_format=flags.reasoning_format,  # type: ignore[arg-type]  # it was checked
        pooling=flags.pooling,  # type: ignore[arg-type]  # it was checked
        context_shift=flags.context_shift,
    )
    file = None if flags.models_file is None else ModelsFile.read(flags.models_file)

    def served(name: str, path: Path) -> ServedModel:
        own = {**recommended_sampling(path), **base.sampling}
        made = replace(base, name=name, path=path, sampling=own)
        return made if file is None else file.apply(name, made)

    def discover() -> list[ServedModel]:
        found = {} if flags.models_dir is None else find_models(flags.models_dir)
        if flags.store:
            found = {**{model.name: model.path for model in store.list_models()}, **found}
        return [served(name, path) for name, path in found.items()]

    models = [served(*_named(given)) for given in flags.models or ()]
    if file is not None:
        models += file.named_models(base, locate)
    if flags.models_dir is not None or flags.store:
        return ServedModels(tuple(models), discover)
    if not models:
        models = [served(*_named(None))]
    return ServedModels(tuple(models), None)


def _named(given: str | None) -> tuple[str, Path]:
    """Split `NAME=MODEL` into the name, by default that of the file, and the file."""
    if given is None or "=" not in given or Path(given).exists() or store.is_remote(given):
        path = locate(given)
        return model_name(path), path
    name, _, model = given.partition("=")
    if not name:
        raise ConfigError(f"{given!r} has no name before the equals sign; use NAME=MODEL")
    return name, locate(model)
