"""The models of a replica: names for the configuration, files for the machine it runs on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ingot import store
from ingot.convert import locate_quantized
from ingot.engine import EngineOptions
from ingot.server.catalog import model_name, split_name
from ingot.server.options import ServedModel, ServerOptions


def named(given: str) -> tuple[str, str]:
    """Split `[NAME=]MODEL` into the name, by default that of the file, and the model."""
    name, model = split_name(given)
    return name or model_name(Path(model)), model


def sources_of(models: Sequence[ServedModel], given: Sequence[str]) -> dict[str, str]:
    """Where models of a command line come from, by the names they are served under.

    The first models are those that were `given`; a file from the hub has a name of its own.
    """
    return {model.name: split_name(each)[1] for model, each in zip(models, given, strict=False)}


def unlocated(given: Mapping[str, str], engine: EngineOptions) -> tuple[ServedModel, ...]:
    """Models whose files are looked for where they are opened."""
    return tuple(ServedModel(name=name, path=Path(given[name]), engine=engine) for name in given)


def located(options: ServerOptions, sources: Mapping[str, str]) -> ServerOptions:
    """The options with the files of this machine.

    A file that is not where another machine has it is looked for by what `sources` call it, and
    downloaded if it comes from the hub; of all replicas of a machine, one does it, and the others
    wait for it.
    """

    def found(model: ServedModel) -> ServedModel:
        if model.path.exists() or model.name not in sources:
            return model
        source = sources[model.name]
        return replace(model, path=locate_quantized(source) or store.resolve(source))

    return replace(options, models=tuple(map(found, options.models)))
