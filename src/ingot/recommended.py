"""What the publisher of a model recommends for its use: template, parameters, context, adapters.

The path of a model comes in. Models of ollama have these beside the weights; other models have
them in the file, or not at all. What cannot be used is left out with a warning, because the model
runs without it.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ingot import store
from ingot.errors import ChatTemplateError, GgufError, SamplingError
from ingot.gguf import GgufLoader
from ingot.sampling import SamplingParams
from ingot.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ingot.store.ollama_folder import Settings
    from ingot.tokenizer.chat_template import ChatTemplate

# ollama's parameters that Ingot has under the same name. Others are about its engine.
_SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "seed",
    "stop",
)

_SYSTEM_FIRST = """\
{%- if not messages or messages[0].role != 'system' -%}
{%- set messages = [{'role': 'system', 'content': SYSTEM}] + messages -%}
{%- endif -%}
"""


def recommended_sampling(path: Path) -> Mapping[str, object]:
    """Sampling parameters by name, all of them valid."""
    settings = store.settings_of(path)
    found: dict[str, object] = {}
    for name in _SAMPLING:
        value = settings.parameters.get(name) if settings else None
        if value is not None:
            try:
                SamplingParams.from_names({name: value})
            except SamplingError as error:
                warnings.warn(f"a parameter of the model is ignored: {error}", stacklevel=2)
            else:
                found[name] = value
    return found


def recommended_context(path: Path) -> int | None:
    """The context that a model asks for, no longer than it allows; None if it asks for none."""
    settings = store.settings_of(path)
    asked = settings.parameters.get("num_ctx") if settings else None
    if asked is None:
        return None
    if type(asked) is not int or asked < 1:
        message = f"a parameter of the model is ignored: num_ctx is {asked!r}"
        warnings.warn(message, stacklevel=2)
        return None
    try:
        with GgufLoader(path) as file:
            architecture = file.metadata.string("general.architecture")
            return min(asked, file.metadata.integer(f"{architecture}.context_length", asked))
    except (GgufError, OSError):
        return None  # opening the model will say why


def recommended_adapters(path: Path) -> Mapping[str, Path]:
    """The LoRA adapters that are a part of a model, by name."""
    settings = store.settings_of(path)
    files = settings.adapters if settings else ()
    return {
        f"{path.stem}-adapter" + (f"-{number}" if number > 1 else ""): Path(file)
        for number, file in enumerate(files, 1)
    }


def chat_template_of(
    file: GgufLoader, tokenizer: Tokenizer, source: str | None = None
) -> "ChatTemplate":
    """The chat template of a model: the given source, ollama's, the file's, or ChatML."""
    from ingot.tokenizer.chat_template import ChatTemplate  # noqa: PLC0415 (imports jinja2)

    if source is not None:
        return ChatTemplate.from_metadata(file.metadata, tokenizer, source)
    template = ChatTemplate.from_metadata(file.metadata, tokenizer)
    source = _changed(template.source, store.settings_of(file.path))
    if source == template.source:
        return template
    return ChatTemplate.from_metadata(file.metadata, tokenizer, source)


def has_chat_template(file: GgufLoader) -> bool:
    """Whether a model has a chat template, so that ChatML is not a guess."""
    settings = store.settings_of(file.path)
    return "tokenizer.chat_template" in file.metadata or bool(settings and settings.template)


def _changed(source: str, settings: "Settings | None") -> str:
    """The template with what ollama says about it."""
    if settings is None:
        return source
    if settings.template:
        from ingot.tokenizer.go_template import jinja_from_go  # noqa: PLC0415 (few need it)

        try:
            source = jinja_from_go(settings.template)
        except ChatTemplateError as error:
            reason = "the template of ollama is ignored, the one in the file is used"
            warnings.warn(f"{reason}: {error}", stacklevel=2)
    if settings.system:
        system = json.dumps(settings.system, ensure_ascii=False)
        source = _SYSTEM_FIRST.replace("SYSTEM", system) + source
    return source
