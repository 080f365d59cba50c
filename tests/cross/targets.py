"""The systems that the core is built for, and what its modules may need there."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A system: as zig names it, as CMake does, and what its modules may need at run time."""

    triple: str
    system: str
    processor: str
    module: str  # the name of the built module
    libraries: frozenset[str]  # in small letters

    def foreign(self, needed: set[str]) -> set[str]:
        """The libraries among these that a system with Python may not have."""
        small = {library.lower() for library in needed}
        if self.system == "Windows":
            small = {library for library in small if not _ON_WINDOWS.fullmatch(library)}
        return small - self.libraries

    def lacks_c_runtime(self, needed: set[str]) -> bool:
        """Whether it is for Windows and has a C runtime to itself.

        Descriptors of files and errno would be others than Python's then.
        """
        of_windows = any(library.lower().startswith("api-ms-win-crt-") for library in needed)
        return self.system == "Windows" and not of_windows


# Python and what it brings, and interfaces of Windows, with the C runtime; no msvcp140.dll.
_ON_WINDOWS = re.compile(r"python3\d*\.dll|vcruntime140(_1)?\.dll|api-ms-win-(core|crt)-.+\.dll")
_GLIBC = frozenset({"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"})
_WINDOWS = frozenset({"kernel32.dll", "ntdll.dll"})

TARGETS = {
    "linux-x86_64": Target(
        "x86_64-linux-gnu.2.17", "Linux", "x86_64", "_native.so", _GLIBC | {"ld-linux-x86-64.so.2"}
    ),
    "linux-aarch64": Target(
        "aarch64-linux-gnu.2.17",
        "Linux",
        "aarch64",
        "_native.so",
        _GLIBC | {"ld-linux-aarch64.so.1"},
    ),
    "macos-arm64": Target(
        "aarch64-macos.11.0",
        "Darwin",
        "arm64",
        "_native.so",
        # zig links its C++ library into the module; that of macOS is a part of it.
        frozenset({"/usr/lib/libsystem.b.dylib", "/usr/lib/libc++.1.dylib"}),
    ),
    "windows-x86_64": Target(
        "x86_64-windows-gnu",
        "Windows",
        "AMD64",
        "_native.pyd",
        _WINDOWS,
    ),
    "windows-arm64": Target(
        "aarch64-windows-gnu",
        "Windows",
        "ARM64",
        "_native.pyd",
        _WINDOWS,
    ),
}
