"""Fail the build if a kernel object could lend its code to another instruction set.

The linker keeps one copy of each weak symbol (a template or inline function that was
not inlined). Were `std::min<int>` compiled with AVX-512 that copy, it would crash an
older CPU. So every weak symbol of an object built for one instruction set must carry
that set's namespace in its name.

Usage: check_symbols.py NM ISA OBJECT...
"""

import re
import subprocess
import sys


def strays(nm: str, isa: str, objects: list[str]) -> list[str]:
    """Return the weak symbols outside namespace ingot::ISA."""
    listing = subprocess.run(
        [nm, "--demangle", *objects], check=True, capture_output=True, text=True
    ).stdout
    weak = re.findall(r"^[0-9a-f ]{16} [WVu] (.*)$", listing, re.MULTILINE)
    return [name for name in weak if f"ingot::{isa}::" not in name]


def main() -> None:
    """Print what was found and exit with 1, or say nothing."""
    nm, isa, *objects = sys.argv[1:]
    if found := strays(nm, isa, objects):
        sys.exit(f"{isa}: shared with other instruction sets: " + "; ".join(found))


if __name__ == "__main__":
    main()
