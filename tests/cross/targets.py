"""The systems that the core is built for on another one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A system: as zig names it, as CMake does, and what its modules may need at run time."""

    triple: str
    system: str
    processor: str
    module: str  # the name of the built module
    libraries: frozenset[str]  # in small letters


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
        frozenset({"/usr/lib/libsystem.b.dylib"}),
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
