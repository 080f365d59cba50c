"""`ingot info`: the version, the CPU, and the settings that Ingot chose."""

import platform
from typing import Annotated

import typer

from ingot import __version__, _native
from ingot.cli.shared.output import write_columns, write_json
from ingot.config import config
from ingot.machine import available_memory, total_memory


def command(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the version, the CPU features and the settings in use.

    Set INGOT_ISA, INGOT_THREADS and INGOT_CACHE to change them.
    """
    settings = config()
    supported = _native.instruction_sets()
    compiled = _native.instruction_sets(supported_only=False)
    if json:
        write_json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "cpu_features": _native.cpu_features(),
                "instruction_sets": {
                    "compiled": compiled,
                    "supported": supported,
                    "chosen": settings.isa,
                },
                "threads": settings.threads,
                "memory": {"total": total_memory(), "available": available_memory()},
                "cache": str(settings.cache),
            }
        )
        return
    write_columns(
        [
            ("ingot", __version__),
            ("Python", f"{platform.python_version()} ({platform.platform()})"),
            ("CPU features", " ".join(_native.cpu_features()) or "none detected"),
            ("compiled for", " ".join(compiled)),
            ("CPU supports", " ".join(supported)),
            ("chosen", settings.isa),
            ("threads", str(settings.threads)),
            ("memory", f"{_gib(total_memory())}, {_gib(available_memory())} of it available"),
            ("cache", str(settings.cache)),
        ]
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
