"""ollama's registry: how to get a model of it.

The manifest of a tag lists layers by digest; each is downloaded as a blob and verified. A model
that ollama has downloaded already is used in its folder. Signing in is not supported: the models
of the public registry need no account.
"""

from pathlib import Path

from ingot.config import config
from ingot.errors import ModelNotFoundError
from ingot.store.download import Checksum, Source
from ingot.store.http import get_json
from ingot.store.names import OllamaName
from ingot.store.ollama_folder import (
    layers_in,
    make_link,
    own_folder,
    read_manifest,
    write_manifest,
)
from ingot.store.plan import Plan, PlannedFile

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_TEXTS = frozenset({"template", "system", "params"})
_WANTED = frozenset({"model", "projector", "adapter"}) | _TEXTS


def plan_ollama(name: OllamaName) -> Plan:
    """How to get a model of the registry."""
    base = f"{_scheme(name.host)}://{name.host}/v2/{name.namespace}/{name.model}"
    try:
        manifest = get_json(f"{base}/manifests/{name.tag}", {"Accept": _MANIFEST})
    except ModelNotFoundError:
        raise ModelNotFoundError(
            f"{name.host} has no model {name.namespace}/{name.model} with the tag {name.tag!r}; "
            "see https://ollama.com/library"
        ) from None
    layers = tuple(layer for layer in read_manifest(manifest, name) if layer.kind in _WANTED)
    folder = own_folder()
    for other in config().ollama_folders:
        if set(layers) <= set(layers_in(other, name) or ()):  # ollama has the same version
            folder = other
    files = tuple(
        PlannedFile(
            Source(
                f"{base}/blobs/sha256:{layer.sha256}",
                f"{layer.kind} of {name}" if layer.kind != "model" else str(name),
                layer.size,
                Checksum(layer.sha256),
            ),
            folder / "blobs" / layer.file,
            weights=layer.kind == "model",
        )
        for layer in sorted(layers, key=lambda layer: layer.kind != "model")
    )

    def finish() -> Path:
        if folder == own_folder():
            write_manifest(folder, name, layers)
        return make_link(name, folder, layers)

    return Plan(str(name), files, finish)


def _scheme(host: str) -> str:
    """http for a registry on this machine, https for all others."""
    return "http" if host.partition(":")[0] in ("localhost", "127.0.0.1") else "https"
