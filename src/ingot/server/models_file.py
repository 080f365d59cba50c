"""The file of `--models-file`: options of single models, as TOML.

    [small]
    model = "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M"   # or the name of a model in the folder: its options
    aliases = ["gpt-4o-mini"]
    load = true                # at the start
    temperature = 0.6
    chat_template_file = "small.jinja"

A model's options are the fields of `EngineOptions` and of `SamplingParams`, and the names below.
They take precedence over the command line. An unknown name or a wrong type is an error that names
the model.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from ingot.engine import EngineOptions
from ingot.engine.recommended_options import recommended_options
from ingot.errors import ConfigError, IngotError
from ingot.models import Pooling
from ingot.recommended import recommended_sampling
from ingot.reply.style import ReasoningFormat
from ingot.sampling import SamplingParams
from ingot.sampling.params import ALIASES
from ingot.server.options import ServedModel

_ENGINE = frozenset(field.name for field in fields(EngineOptions))
_SAMPLING = frozenset(field.name for field in fields(SamplingParams)) | ALIASES.keys()
_OWN: Mapping[str, type | tuple[type, ...]] = MappingProxyType(
    {
        "model": str,
        "aliases": list,
        "load": bool,
        "chat_template": str,
        "chat_template_file": str,
        "reasoning_format": str,
        "pooling": str,
        "context_shift": bool,
    }
)
Locate = Callable[[str], Path]


@dataclass(frozen=True, slots=True)
class ModelsFile:
    """What a file says of models."""

    path: Path
    models: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> "ModelsFile":
        """Read a file; what is wrong with it is an error."""
        try:
            content = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from None
        for name, options in content.items():
            _check(path, name, options)
        return cls(path, content)

    def apply(self, name: str, base: ServedModel) -> ServedModel:
        """A model with what the file says of it."""
        given = self.models.get(name, {})
        try:
            return self._applied(given, base)
        except (IngotError, TypeError) as error:
            raise ConfigError(f"{self.path}: {name}: {error}") from error

    def named_models(self, base: ServedModel, locate: Locate) -> list[ServedModel]:
        """The models that the file itself names, with `model`."""
        found = []
        for name, options in self.models.items():
            if "model" in options:
                path = locate(options["model"])
                sampling = {**recommended_sampling(path), **base.sampling}
                engine = recommended_options(path, base.engine)
                own = replace(base, name=name, path=path, sampling=sampling, engine=engine)
                found.append(self.apply(name, own))
        return found

    def _applied(self, given: Mapping[str, Any], base: ServedModel) -> ServedModel:
        engine = {name: value for name, value in given.items() if name in _ENGINE}
        sampling = {name: value for name, value in given.items() if name in _SAMPLING}
        SamplingParams.from_names(sampling)
        template = given.get("chat_template", base.chat_template)
        if "chat_template_file" in given:
            template = (self.path.parent / given["chat_template_file"]).read_text("utf-8")
        return replace(
            base,
            engine=replace(base.engine, **engine),
            sampling={**base.sampling, **sampling},
            chat_template=template,
            reasoning_format=_one_of(
                given, "reasoning_format", ReasoningFormat, base.reasoning_format
            ),
            pooling=_one_of(given, "pooling", Pooling, base.pooling),
            aliases=(*base.aliases, *given.get("aliases", ())),
            opens_at_start=given.get("load", base.opens_at_start),
            context_shift=given.get("context_shift", base.context_shift),
        )


def _check(path: Path, name: str, options: object) -> None:
    if not isinstance(options, dict):
        raise ConfigError(f"{path}: {name} is not the table of a model; write [NAME]")
    known = [*_OWN, *_ENGINE, *_SAMPLING]
    for key, value in options.items():
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{path}: {name} has an unknown option {key!r}{hint}")
        if key in _OWN and not isinstance(value, _OWN[key]):
            raise ConfigError(f"{path}: {key} of {name} is {value!r}, which is of the wrong type")


def _one_of(given: Mapping[str, Any], name: str, kind: Any, default: Any) -> Any:
    value = given.get(name, default)
    if value is not None and value not in get_args(kind):
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(get_args(kind))}")
    return value
