"""Writes a copy of a model, with progress; the space on the disk is checked before."""

from pathlib import Path

from ingot.bar import DownloadBar
from ingot.errors import ConfigError
from ingot.files import require_room
from ingot.gguf import GgufLoader, GgufWriter


def write_copy(source: GgufLoader, writer: GgufWriter, *, replace: bool = False) -> list[Path]:
    """Write what a writer has; with `replace`, also over the files that it was copied from."""
    path, total, done = writer.path, writer.data_bytes, 0
    if not replace and any(file.path.resolve() == path.resolve() for file in source.files):
        raise ConfigError(f"{path} is the model itself; choose another name for the result")
    require_room(path.parent.resolve(), total, path.name, "choose another disk")
    with DownloadBar() as bar:

        def report(count: int) -> None:
            nonlocal done
            done += count
            bar(f"writing {path.name}", done, total)

        return writer.write(report)
