"""Only native/system asks the operating system: no other file has its headers or its calls.

And no file uses what a C++ library that we build with lacks.
"""

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
FILES = sorted(
    file
    for file in NATIVE.rglob("*")
    if file.suffix in {".cpp", ".h", ".inc"} and file.parent != NATIVE / "system"
)
# Headers of C++ have no ending. These are of compilers and of nanobind.
PORTABLE = re.compile(r"[a-z_]+|(immintrin|arm_neon)\.h|nanobind/[a-z/_]+\.h")
SYSTEMS = re.compile(
    r"\b(_WIN\w+|__linux__|__gnu_linux__|__unix__|__APPLE__|__MACH__|__ANDROID__)\b"
)
CALLS = re.compile(
    r"""\b(
      (mmap|munmap|mremap|madvise|posix_\w+|mlock|mprotect|sysconf|syscall|getauxval|sysctl\w*)
    | (getpid|gettid|fork|vfork|waitpid|kill|raise|signal|sigaction|sig\w+set|pipe|dup2?|ioctl)
    | (openat|pread|preadv|pwrite|lseek|fstat|ftruncate|unlink)
    | (pthread_\w+|sched_\w+|usleep|nanosleep|clock_\w+|gettimeofday|getenv|setenv|dlopen|dlsym)
    | (Virtual(Alloc|Free|Lock|Unlock|Protect)\w*|\w*MapViewOfFile\w*|CreateFile\w*|GetLastError)
    | (GetCurrent(Process|Thread)\w*|GetSystemInfo|IsProcessorFeaturePresent|WaitOnAddress)
    )\s*\(""",
    re.VERBOSE,
)
# Hidden by libc++ before LLVM 20, so by Apple's clang before Xcode 26.
NEWER = re.compile(r"\b(jthread|stop_(token|source|callback))\b")
OURS = re.compile(r"(\.|->|\w::)$")  # a function of a class or of a namespace


def faults(code: str) -> list[str]:
    """What a file has of an operating system, or of C++ libraries that some systems lack."""
    code = re.sub(r'//[^\n]*|/\*.*?\*/|"(\\.|[^"\\\n])*"', '""', code, flags=re.DOTALL)
    headers = [
        name for name in re.findall(r"#\s*include\s*<(.+?)>", code) if not PORTABLE.fullmatch(name)
    ]
    macros = [found[0] for found in SYSTEMS.finditer(code)]
    newer = [found[0] for found in NEWER.finditer(code)]
    calls = [found[1] for found in CALLS.finditer(code) if not OURS.search(code[: found.start()])]
    return headers + macros + newer + calls


def test_no_file_outside_native_system_asks_the_operating_system() -> None:
    assert len(FILES) > 150
    found = {str(file.relative_to(NATIVE)): faults(file.read_text("utf-8")) for file in FILES}
    assert {name: these for name, these in found.items() if these} == {}, "see native/system"


@pytest.mark.parametrize(
    "code",
    [
        "#include <unistd.h>",
        "#include <sys/mman.h>",
        "# include <windows.h>",
        "#if defined(__linux__)",
        "#ifdef _WIN32",
        "int pid = getpid();",
        "::madvise(data, size, 4);",
        "VirtualAlloc(nullptr, size, 0, 0);",
        "pthread_atfork(nullptr, nullptr, function);",
        "std::vector<std::jthread> workers;",
        "#include <stop_token>",
    ],
)
def test_what_is_of_a_system_is_found(code: str) -> None:
    assert faults(code)


@pytest.mark.parametrize(
    "code",
    [
        "#include <vector>",
        '#include "system/system.h"',
        "// mmap(",
        "system::prefetch(a, b);",
        "file.read(to)",
    ],
)
def test_what_is_portable_is_not(code: str) -> None:
    assert not faults(code)
