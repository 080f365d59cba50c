"""The special tokens and chat templates of a checkpoint, as keys of a GGUF file.

In: the folder and its vocabulary. Out: keys. Ids come from tokenizer_config.json (which names
tokens), else from config.json (which has numbers).
"""

from collections.abc import Mapping
from typing import Any

from ingot.convert.folder import CheckpointFolder
from ingot.convert.vocabulary import Vocabulary
from ingot.errors import ConversionError
from ingot.models.checkpoint import Value

_MOST_TEMPLATE_BYTES = 10_000_000

# The key in the file (`seperator` is the format's own spelling) and the name in a checkpoint.
_NAMES = (
    ("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("seperator", "sep"), ("padding", "pad"),
    ("cls", "cls"), ("mask", "mask"),
)  # fmt: skip


def special_keys(folder: CheckpointFolder, vocabulary: Vocabulary) -> dict[str, Value]:
    """The ids of special tokens, and which are added to texts."""
    described = folder.json("tokenizer_config.json")
    ids = {text: id for id, text in enumerate(vocabulary.tokens)}
    keys: dict[str, Value] = {}
    for key, name in _NAMES:
        id = vocabulary.specials.get(key, ids.get(_text(described.get(f"{name}_token"))))
        if id is None:
            id = _stated_id(folder, f"{name}_token_id")
        if id is not None and 0 <= id < len(vocabulary.tokens):
            keys[f"tokenizer.ggml.{key}_token_id"] = id
    added = {**_from_post_processor(folder, keys, ids), **_flags(described), **vocabulary.flags}
    return keys | {f"tokenizer.ggml.{name}": value for name, value in added.items()}


def _text(token: Any) -> str:
    """The text of a token, which may be an object."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else ""


def _stated_id(folder: CheckpointFolder, name: str) -> int | None:
    text = folder.config.get("text_config")
    for source in (folder.config, text if isinstance(text, Mapping) else {}):
        value = source.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if type(value) is int:
            return value
    return None


def _flags(described: Mapping[str, Any]) -> dict[str, bool]:
    names = ("add_bos_token", "add_eos_token")
    return {name: described[name] for name in names if isinstance(described.get(name), bool)}


def _from_post_processor(
    folder: CheckpointFolder, keys: Mapping[str, Value], ids: Mapping[str, int]
) -> dict[str, bool]:
    """What the template of tokenizer.json puts around a text."""
    steps = folder.json("tokenizer.json").get("post_processor")
    if isinstance(steps, Mapping) and steps.get("type") == "Sequence":
        steps = next(
            (
                step
                for step in steps.get("processors") or ()
                if isinstance(step, Mapping) and step.get("type") == "TemplateProcessing"
            ),
            None,
        )
    if not isinstance(steps, Mapping) or steps.get("type") != "TemplateProcessing":
        return {}
    single = steps.get("single")
    around = [
        ids.get(_text((item.get("SpecialToken") or {}).get("id")))
        for item in (single if isinstance(single, list) else [])
        if isinstance(item, Mapping)
    ]
    bos, eos = (keys.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
    return {
        "add_bos_token": bool(around) and around[0] is not None and around[0] == bos,
        "add_eos_token": bool(around) and around[-1] is not None and around[-1] == eos,
    }


def template_keys(folder: CheckpointFolder) -> dict[str, Value]:
    """The chat template, and others by name."""
    path = folder.path / "chat_template.jinja"
    found: dict[str, str] = {}
    stated = folder.json("tokenizer_config.json").get("chat_template")
    if stated is None:
        stated = folder.json("chat_template.json").get("chat_template")
    if path.is_file():
        if path.stat().st_size > _MOST_TEMPLATE_BYTES:
            raise ConversionError(f"{path} is larger than {_MOST_TEMPLATE_BYTES} bytes")
        found["default"] = path.read_text(encoding="utf-8", errors="replace")
    elif isinstance(stated, str):
        found["default"] = stated
    elif isinstance(stated, list):
        for entry in stated:
            if isinstance(entry, Mapping) and isinstance(entry.get("template"), str):
                found[str(entry.get("name", "default"))] = entry["template"]
    keys: dict[str, Value] = {}
    if others := sorted(name for name in found if name != "default"):
        keys["tokenizer.chat_templates"] = others
        keys |= {f"tokenizer.chat_template.{name}": found[name] for name in others}
    if "default" in found:
        keys["tokenizer.chat_template"] = found["default"]
    return keys
