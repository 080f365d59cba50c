"""A folder in ollama's layout: which models it has, and where their files are.

    manifests/HOST/NAMESPACE/MODEL/TAG    JSON: the layers, each with kind, digest and size
    blobs/sha256-DIGEST                   the layers

ollama's own folder is read, never written; Ingot keeps what it downloads in a folder of the same
layout. A link with the name of the model leads to the blob of its weights, beside a file with the
layers that are text: the template, the parameters, the system message, and where the LoRA adapters
are.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ingot.config import config
from ingot.errors import StoreError
from ingot.files import remove_file, write_file
from ingot.machine import link_file
from ingot.store.names import OllamaName, parse_name

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_KIND = "application/vnd.ollama.image."
_LARGEST = 1 << 44  # bytes of a layer
_LARGEST_TEXT = 1 << 20
_MOST_LAYERS = 100


@dataclass(frozen=True, slots=True)
class Layer:
    """A file of a model."""

    kind: str  # model, projector, adapter, template, params, system, ...
    sha256: str
    size: int

    @property
    def file(self) -> str:
        """Its name among the blobs."""
        return f"sha256-{self.sha256}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a model of ollama says about its use."""

    template: str | None = None  # in the language of Go's package text/template
    system: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    adapters: Sequence[str] = ()  # files of LoRA adapters that are a part of the model


def own_folder() -> Path:
    """Ingot's own folder in this layout."""
    return config().cache / "models" / "ollama"


def read_manifest(manifest: object, name: OllamaName) -> tuple[Layer, ...]:
    """The layers of a manifest, checked."""
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    if not isinstance(layers, list) or len(layers) > _MOST_LAYERS:
        raise StoreError(f"the manifest of {name} is damaged: it has no list of layers")
    found = []
    for given in layers:
        layer = given if isinstance(given, dict) else {}
        kind, size = layer.get("mediaType"), layer.get("size")
        digest = _DIGEST.fullmatch(str(layer.get("digest")))
        if not isinstance(kind, str) or not digest or type(size) is not int:
            raise StoreError(f"the manifest of {name} is damaged: a layer has no digest or size")
        if not 0 <= size <= (_LARGEST if kind in _LARGE else _LARGEST_TEXT):
            raise StoreError(f"the manifest of {name} is damaged: a layer has {size} bytes")
        found.append(Layer(kind.removeprefix(_KIND), digest[1], size))
    kinds = [layer.kind for layer in found]
    if kinds.count("model") != 1:
        raise StoreError(
            f"{name} has {kinds.count('model')} model layers; Ingot runs one GGUF file"
        )
    return tuple(found)


def layers_in(folder: Path, name: OllamaName) -> tuple[Layer, ...] | None:
    """The layers of a model whose files are all in a folder."""
    try:
        with _manifest(folder, name).open("rb") as file:
            layers = read_manifest(json.loads(file.read(_LARGEST_TEXT)), name)
    except (OSError, ValueError, RecursionError, StoreError):
        return None
    blobs = folder / "blobs"
    return layers if all(_has_size(blobs / each.file, each.size) for each in layers) else None


def write_manifest(folder: Path, name: OllamaName, layers: tuple[Layer, ...]) -> None:
    """Write the manifest of a model whose blobs are complete."""
    path = _manifest(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = [
        {"mediaType": _KIND + each.kind, "digest": f"sha256:{each.sha256}", "size": each.size}
        for each in layers
    ]
    write_file(path, [json.dumps({"schemaVersion": 2, "layers": listed}).encode()])


def remove_ollama(name: OllamaName) -> int:
    """Remove a model from our folder, with the blobs that no other model has; the bytes freed."""
    folder = own_folder()
    gone = layers_in(folder, name) or ()
    remove_file(_manifest(folder, name))
    remove_file(_link(name))
    remove_file(_settings_file(_link(name)))
    kept = {
        layer for other, _, _ in ollama_models(folder) for layer in layers_in(folder, other) or ()
    }
    freed = [layer for layer in gone if layer not in kept]
    for layer in freed:
        remove_file(folder / "blobs" / layer.file)
    return sum(layer.size for layer in freed)


def find_ollama(name: OllamaName) -> Path | None:
    """The link to a model that is here, in ollama's folder or in ours."""
    for folder in (*config().ollama_folders, own_folder()):
        if layers := layers_in(folder, name):
            return make_link(name, folder, layers)
    return None


def ollama_models(folder: Path) -> Iterator[tuple[OllamaName, Path, int]]:
    """The models in a folder: name, file of the weights, and bytes."""
    manifests = folder / "manifests"
    for path in sorted(manifests.glob("*/*/*/*")):
        host, namespace, model, tag = path.relative_to(manifests).parts
        name = OllamaName(host, namespace, model, tag)
        if _is_writable(name) and (layers := layers_in(folder, name)):
            weights = next(layer for layer in layers if layer.kind == "model")
            yield name, folder / "blobs" / weights.file, sum(layer.size for layer in layers)


def make_link(name: OllamaName, folder: Path, layers: tuple[Layer, ...]) -> Path:
    """Link the name of a model to its weights, and write its settings beside the link."""
    blobs = folder / "blobs"
    link = _link(name)
    target = blobs / next(layer.file for layer in layers if layer.kind == "model")
    try:
        settings = json.dumps(asdict(_settings(blobs, layers)), sort_keys=True).encode()
        link.parent.mkdir(parents=True, exist_ok=True)
        if _content(_settings_file(link)) != settings:
            write_file(_settings_file(link), [settings])
        if not (link.exists() and link.samefile(target)):
            draft = link.with_suffix(f".{os.getpid()}.link")
            draft.unlink(missing_ok=True)
            link_file(target, draft)
            draft.replace(link)
    except OSError as error:
        raise StoreError(
            f"cannot link {name} in {link.parent}: {error.strerror or error}"
        ) from error
    return link


def settings_of(path: Path) -> Settings | None:
    """The settings of a model that `make_link` has linked; None for other files."""
    if own_folder() / "links" not in path.parents:
        return None
    content = _content(_settings_file(path))
    try:
        return Settings(**json.loads(content)) if content else None
    except (ValueError, TypeError):
        return None


def _settings(blobs: Path, layers: tuple[Layer, ...]) -> Settings:
    texts = {
        layer.kind: (blobs / layer.file).read_text(encoding="utf-8", errors="replace")
        for layer in layers
        if layer.kind in ("template", "system", "params")
    }
    parameters: object = {}
    with suppress(ValueError, RecursionError):
        parameters = json.loads(texts.get("params", "{}"))
    known = parameters if isinstance(parameters, dict) else {}
    adapters = [str(blobs / layer.file) for layer in layers if layer.kind == "adapter"]
    return Settings(texts.get("template"), texts.get("system"), known, adapters)


def _manifest(folder: Path, name: OllamaName) -> Path:
    return folder / "manifests" / name.host / name.namespace / name.model / name.tag


def _link(name: OllamaName) -> Path:
    return own_folder() / "links" / name.host / name.namespace / f"{name.model}-{name.tag}.gguf"


def _settings_file(link: Path) -> Path:
    return link.with_suffix(".json")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _is_writable(name: OllamaName) -> bool:
    """Whether the parts of a path make a name that a user could write."""
    try:
        return parse_name(f"ollama:{name.host}/{name.namespace}/{name.model}:{name.tag}") == name
    except StoreError:
        return False


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


_LARGE = frozenset(_KIND + kind for kind in ("model", "projector", "adapter"))
