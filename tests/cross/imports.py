"""Check what built modules need from the system they are for.

Usage: imports.py TARGET PYTHON_NAMES MODULE...    with an interpreter that has lief

A module is a file, or in a wheel.
A module must be of the right kind, export its start, and need nothing beyond the libraries that
every such system has: no C++ runtime, no newer glibc, no name of Python that Python does not have.
"""

import re
import sys
import zipfile
from pathlib import Path

import lief
from targets import TARGETS, Target

START = "PyInit__native"
MACHINES = {
    "x86_64": "X86_64",
    "AMD64": "AMD64",
    "aarch64": "AARCH64",
    "arm64": "ARM64",
    "ARM64": "ARM64",
}


def of_elf(module: lief.ELF.Binary, target: Target) -> tuple[set[str], set[str], set[str]]:
    """Libraries, imported names, exported names."""
    newest = tuple(map(int, target.triple.rpartition("gnu.")[2].split(".")))
    for needed in module.symbols_version_requirement:
        for version in needed.get_auxiliary_symbols():
            if re.fullmatch(r"GLIBC_[\d.]+", version.name):
                found = tuple(map(int, version.name.removeprefix("GLIBC_").split(".")))
                if found > newest:
                    sys.exit(f"{target.triple}: needs {version.name} of {needed.name}")
    return (
        set(module.libraries),
        {symbol.name for symbol in module.dynamic_symbols if symbol.shndx == 0},  # of any type
        {symbol.name for symbol in module.exported_symbols},
    )


def of_macho(module: lief.MachO.Binary) -> tuple[set[str], set[str], set[str]]:
    """Libraries, imported names, exported names."""
    own = lief.MachO.LoadCommand.TYPE.ID_DYLIB
    return (
        {library.name for library in module.libraries if library.command != own},
        {symbol.name.removeprefix("_") for symbol in module.imported_symbols},
        {symbol.name.removeprefix("_") for symbol in module.exported_symbols},
    )


def of_pe(module: lief.PE.Binary) -> tuple[set[str], set[str], set[str]]:
    """Libraries, imported names, exported names."""
    export = module.get_export()
    return (
        {library.name for library in module.imports},
        {entry.name for library in module.imports for entry in library.entries},
        {entry.name for entry in export.entries} if export else set(),
    )


def is_native(name: str) -> bool:
    """Whether a file of a wheel is the core; its types (`_native.pyi`) lie beside it."""
    return name.startswith("ingot/_native.") and name.endswith((".so", ".pyd"))


def bytes_of(path: Path) -> bytes:
    """A module."""
    if path.suffix != ".whl":
        return path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        (module,) = (name for name in wheel.namelist() if is_native(name))
        return wheel.read(module)


def check(name: str, known: set[str], path: Path) -> None:
    """Say what is wrong, or how much is imported."""
    target = TARGETS[name]
    parsed = lief.parse(bytes_of(path))
    if isinstance(parsed, lief.ELF.Binary):
        machine, found = parsed.header.machine_type.name, of_elf(parsed, target)
    elif isinstance(parsed, lief.MachO.Binary):
        machine, found = parsed.header.cpu_type.name, of_macho(parsed)
    elif isinstance(parsed, lief.PE.Binary):
        machine, found = parsed.header.machine.name, of_pe(parsed)
    else:
        sys.exit(f"{path}: neither ELF, Mach-O nor PE")
    libraries, imported, exported = found
    if machine != MACHINES[target.processor]:
        sys.exit(f"{name}: built for {machine}")
    if START not in exported:
        sys.exit(f"{name}: does not export {START}")
    if foreign := target.foreign(libraries):
        sys.exit(f"{name}: needs {', '.join(sorted(foreign))}")
    if target.lacks_c_runtime(libraries):
        sys.exit(f"{name}: does not share the C runtime with Python")
    python = {symbol for symbol in imported if symbol.startswith(("Py", "_Py"))}
    if unknown := python - known:
        sys.exit(f"{name}: names that are not Python's: {', '.join(sorted(unknown))}")
    if not python:
        sys.exit(f"{name}: imports nothing of Python")
    print(f"{name}: {', '.join(sorted(libraries))}; {len(python)} names of Python")


def main() -> None:
    """Check all."""
    name, list_of_names, *paths = sys.argv[1:]
    known = {line.split("_", 1)[1] for line in Path(list_of_names).read_text().splitlines() if line}
    for path in paths:
        check(name, known, Path(path))


if __name__ == "__main__":
    main()
