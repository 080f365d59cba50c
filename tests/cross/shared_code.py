"""Check that kernels of one instruction set lend no code to another, in objects for any system.

Usage: shared_code.py FOLDER    with an interpreter that has lief

The same rule as native/isa/check_symbols.py, which runs in every build for Linux, with nm. nm knows
one system's objects; lief knows those of macOS and Windows, too. FOLDER is CMake's; the objects of
an instruction set are in `ingot_<name>.dir` somewhere under it.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import lief

_WEAK = 0x80  # N_WEAK_DEF: the linker keeps one of several


def weak_symbols(path: Path) -> Iterator[str]:
    """The names, as the compiler spells them, of what the linker keeps once for all objects."""
    parsed = lief.parse(str(path))
    if isinstance(parsed, lief.ELF.Binary):
        for symbol in parsed.symbols:
            if symbol.shndx and symbol.binding.name in {"WEAK", "GNU_UNIQUE"}:
                yield str(symbol.name)
    elif isinstance(parsed, lief.MachO.Binary):
        for symbol in parsed.symbols:
            if symbol.type.name == "SECTION" and symbol.description & _WEAK:
                yield str(symbol.name)
    elif isinstance(parsed, lief.COFF.Binary):
        for symbol in parsed.symbols:  # sections' names, of which the linker keeps one
            once = re.fullmatch(r"\.(?:text|data|bss|rdata|tls)\$(.+)", str(symbol.name))
            if once and not once[1].startswith(".refptr."):  # the address of something elsewhere
                yield once[1]
    else:
        sys.exit(f"{path}: neither ELF, Mach-O nor COFF")


def is_own(symbol: str, isa: str) -> bool:
    """Whether ingot::ISA, perhaps with `ingot` abbreviated, is in a mangled name."""
    return re.search(rf"(5ingot|S[0-9A-Z]*_){len(isa)}{isa}(?![a-z])", symbol) is not None


def main() -> None:
    """Print what was found and exit with 1, or say how much was looked at."""
    folders = sorted(Path(sys.argv[1]).rglob("ingot_*.dir"))
    kernels = [folder for folder in folders if list(folder.glob("native/isa/*"))]
    looked = 0
    for folder in kernels:
        isa = folder.stem.removeprefix("ingot_")
        objects = [path for path in folder.rglob("*.o*") if path.suffix in {".o", ".obj"}]
        found = [name for path in objects for name in weak_symbols(path)]
        if strays := sorted({name for name in found if not is_own(name, isa)}):
            sys.exit(f"{isa}: shared with other instruction sets: " + "; ".join(strays))
        looked += len(found)
    if not looked:
        sys.exit(f"{sys.argv[1]}: no kernels")
    print(f"{len(kernels)} instruction sets share none of {looked} symbols")


if __name__ == "__main__":
    main()
