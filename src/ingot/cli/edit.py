"""`ingot edit`: change the metadata of a file."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ingot.cli.shared.copies import write_copy
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.output import notice
from ingot.errors import ConfigError, GgufError
from ingot.gguf import GgufLoader, GgufWriter, ValueType
from ingot.gguf.copying import FILE_KEYS, copy_keys, copy_tensor


def command(
    source: Annotated[str, typer.Argument(metavar="FILE", help="A GGUF file.")],
    *,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A known key keeps its type. A new one has the type of the value as JSON, or is "
            "a string. May be repeated.",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="KEY", help="May be repeated.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Default: the file itself."),
    ] = None,
) -> None:
    """Change keys of a GGUF file and print its path.

    The file is written anew and replaced when the new one is complete, so the disk needs room for
    both. Programs that use the old file keep it until they close it.

    Example: ingot edit model.gguf --set general.name=Mine --set tokenizer.ggml.eos_token_id=7
    """
    changes = dict(_pair(text) for text in set or ())
    removed = remove or []
    if not changes and not removed:
        raise ConfigError("nothing to do: give --set KEY=VALUE or --remove KEY")
    path = locate(source)
    with GgufLoader(path) as loader:
        if len(loader.files) > 1 and output is None:
            raise ConfigError(f"{path} is split; give -o FILE, which gets all parts")
        for key in (*changes, *removed):
            if key in FILE_KEYS:
                raise ConfigError(f"{key} is about the file itself and cannot be changed")
        unknown = [key for key in removed if key not in loader.metadata]
        if unknown:
            raise ConfigError(f"{path} has no key {unknown[0]}; see `ingot inspect --json {path}`")
        writer = GgufWriter(output or path, alignment=loader.alignment)
        copy_keys(loader, writer, without=(*changes, *removed))
        for key, text in changes.items():
            before, kind, value = _old(loader, key), *_typed(loader, key, text)
            writer.add(key, value, kind)
            notice(f"{key}: {before} -> {text}")
        for tensor in loader.tensors.values():
            copy_tensor(tensor, writer)
        paths = write_copy(loader, writer, replace=output is None)
    print(paths[0])


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise ConfigError(f"{text!r} is not KEY=VALUE")
    return key, value


def _old(loader: GgufLoader, key: str) -> str:
    return str(loader.metadata[key])[:80] if key in loader.metadata else "(new)"


def _typed(loader: GgufLoader, key: str, text: str) -> tuple[ValueType | None, Any]:
    """The type and the value of a key; `ConfigError` if the text is no such value."""
    known = loader.metadata.entry(key) if key in loader.metadata else None
    if known is not None and known.type is ValueType.STRING:
        return ValueType.STRING, text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if known is None:
        if value is None or isinstance(value, dict):
            value = text
        return None, value
    is_list = known.type is ValueType.ARRAY
    if isinstance(value, list) is not is_list:
        wanted = "a JSON list" if is_list else f"one {known.type.name} value"
        raise ConfigError(f"{key} needs {wanted}, not {text!r}")
    try:
        GgufWriter("check").add(key, value, known.element_type)
    except GgufError as error:
        raise ConfigError(f"{key} cannot be {text!r}: {error.reason}") from None
    return known.element_type, value
