"""What a built module may need from the system that it is for, and a wheel of the line."""

import pytest

from cross.targets import TARGETS
from wheels.try_wheel import MOST_SECONDS, seconds_on_a_slow_line

C_RUNTIME = "api-ms-win-crt-runtime-l1-1-0.dll"


@pytest.mark.parametrize(
    ("target", "libraries"),
    [
        ("windows-x86_64", {"KERNEL32.dll", "python312.dll", C_RUNTIME}),
        ("windows-x86_64", {"python3.dll", "VCRUNTIME140.dll", "VCRUNTIME140_1.dll"}),
        ("windows-arm64", {"KERNEL32.dll", "api-ms-win-core-synch-l1-2-0.dll"}),
        ("macos-arm64", {"/usr/lib/libSystem.B.dylib", "/usr/lib/libc++.1.dylib"}),
        ("linux-x86_64", {"libc.so.6", "libm.so.6"}),
    ],
)
def test_what_every_such_system_has_is_allowed(target: str, libraries: set[str]) -> None:
    assert TARGETS[target].foreign(libraries) == set()


@pytest.mark.parametrize(
    ("target", "library"),
    [
        ("windows-x86_64", "MSVCP140.dll"),
        ("windows-arm64", "MSVCP140.dll"),
        ("windows-x86_64", "libc++.dll"),
        ("windows-x86_64", "python27.dll"),
        ("macos-arm64", "/opt/homebrew/lib/libc++.1.dylib"),
        ("macos-arm64", C_RUNTIME),
        ("linux-x86_64", "libstdc++.so.6"),
    ],
)
def test_what_some_lack_is_foreign(target: str, library: str) -> None:
    assert TARGETS[target].foreign({library}) == {library.lower()}


def test_a_module_for_windows_shares_the_c_runtime_with_python() -> None:
    """Files are mapped by descriptors that Python opened."""
    assert not TARGETS["windows-x86_64"].lacks_c_runtime({"KERNEL32.dll", C_RUNTIME})
    assert TARGETS["windows-x86_64"].lacks_c_runtime({"KERNEL32.dll", "python312.dll"})
    assert not TARGETS["macos-arm64"].lacks_c_runtime({"/usr/lib/libSystem.B.dylib"})


def test_a_slow_line_carries_20_megabits_a_second() -> None:
    assert seconds_on_a_slow_line(50_000_000, 5.0, 1.5) == pytest.approx(26.5)
    assert seconds_on_a_slow_line(150_000_000, 0.0, 0.1) > MOST_SECONDS
