"""Compile and link the core for other systems, and check what the modules need there.

Usage: build.py ZIG_ENVIRONMENT FOLDER [--optimized] [TARGET ...]

zig has the compiler, the headers and the C and C++ libraries of every system in itself. Python's
headers are those of this machine; on Windows its library is an import library made from the list of
Python's functions that nanobind has. Nothing is optimized unless asked for, which is quick.
The module for this kind of machine is also imported here.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nanobind

from cross.targets import TARGETS, Target

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
VERSION = f"{sys.version_info.major}{sys.version_info.minor}"
PYTHON_NAMES = Path(nanobind.cmake_dir()) / "darwin-ld-cpython.sym"
INCLUDE = Path(sysconfig.get_path("include"))

# zig's linker takes no lists of undefined names, and ends badly when it makes a bundle. imports.py
# compares the names instead. Two libraries are those of this machine's Python.
# zig takes a CPU where others take an architecture.
_COMPILER = """#!/bin/sh
for argument do
  shift
  case $argument in
    -Wl,@*) set -- "$@" -undefined dynamic_lookup ;;
    -bundle) set -- "$@" -dynamiclib ;;
    -ldl | -lutil) ;;
    -march=armv8.2-a*) set -- "$@" "-mcpu=generic+v8_2a${{argument#-march=armv8.2-a}}" ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {zig} c++ -target {triple} -fno-sanitize=undefined "$@"
"""


def make_tools(zig: Path, target: Target, folder: Path) -> None:
    """Programs that CMake calls."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = {"c++": _COMPILER.format(zig=zig, triple=target.triple)}
    for name in ("ar", "ranlib"):
        programs[name] = f'#!/bin/sh\nexec {zig} {name} "$@"\n'
    for name, text in programs.items():
        program = folder / name
        if not program.exists() or program.read_text() != text:
            program.write_text(text)
            program.chmod(0o755)


def make_python(zig: Path, target: Target, folder: Path) -> list[str]:
    """Python's headers and, on Windows, its import library: settings of CMake that name them."""
    if target.system != "Windows":
        return [f"-DPython_INCLUDE_DIR={INCLUDE}"]
    headers, library = folder / "include", folder / f"libpython{VERSION}.a"
    shutil.copytree(INCLUDE, headers, dirs_exist_ok=True)
    shutil.copy2(HERE / "pyconfig.h", headers)  # a new date would compile everything again
    names = [line.removeprefix("-U _") for line in PYTHON_NAMES.read_text().splitlines()]
    definition = folder / "python.def"
    definition.write_text("\n".join([f"LIBRARY python{VERSION}.dll", "EXPORTS", *names, ""]))
    machine = {"AMD64": "i386:x86-64", "ARM64": "arm64"}[target.processor]
    command = [zig, "dlltool", "-m", machine, "-d", definition, "-l", library]
    subprocess.run(command, check=True)
    return [f"-DPython_INCLUDE_DIR={headers}", f"-DPython_LIBRARY={library}"]


def build(zig: Path, target: Target, folder: Path, optimized: bool) -> Path:
    """Make the module."""
    make_tools(zig, target, folder / "tools")
    programs = Path(sys.executable).parent
    settings = {
        "CMAKE_MAKE_PROGRAM": programs / "ninja",
        # nanobind compiles for size unless this is Debug. The levels are those of each part.
        "CMAKE_BUILD_TYPE": "Release" if optimized else "Debug",
        "CMAKE_CXX_FLAGS_RELEASE": "-DNDEBUG",
        "CMAKE_CXX_FLAGS_DEBUG": "-DNDEBUG",
        "CMAKE_TOOLCHAIN_FILE": HERE / "toolchain.cmake",
        "INGOT_TOOLS": folder / "tools",
        "INGOT_SYSTEM": target.system,
        "INGOT_PROCESSOR": target.processor,
        "INGOT_UNOPTIMIZED": "OFF" if optimized else "ON",
        "Python_EXECUTABLE": sys.executable,
        "NB_SUFFIX": Path(target.module).suffix,
        "NB_SUFFIX_S": Path(target.module).suffix,
    }
    command = [programs / "cmake", "-S", ROOT, "-B", folder / "objects", "-G", "Ninja"]
    command += [f"-D{name}={value}" for name, value in settings.items()]
    command += make_python(zig, target, folder)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([programs / "cmake", "--build", folder / "objects"], check=True)
    return folder / "objects" / target.module


def check_code(python: Path, folder: Path) -> None:
    """Look for code that instruction sets share, after a file in which there is some."""
    program = [python, HERE / "shared_code.py"]
    stray = folder / "stray" / "ingot_scalar.dir" / "native" / "isa" / "stray.o"
    stray.parent.mkdir(parents=True, exist_ok=True)
    compiler = folder / "tools" / "c++"
    subprocess.run([compiler, "-O1", "-c", HERE / "stray.cpp", "-o", stray], check=True)
    found = subprocess.run(
        [*program, folder / "stray"], capture_output=True, text=True, check=False
    )
    if found.returncode != 1 or "6shared" not in found.stderr or "3own" in found.stderr:
        sys.exit(f"shared_code.py finds something else in stray.cpp: {found.stderr or 'nothing'}")
    subprocess.run([*program, folder / "objects"], check=True)


def run_here(module: Path, folder: Path) -> None:
    """Import the package with this module."""
    site = folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "ingot", site / "ingot")
    shutil.copy(module, site / "ingot")
    code = "import ingot, ingot._native as n; print(n.__file__)"
    places = [str(site), sysconfig.get_path("purelib")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    # -S keeps the editable install from shadowing this one.
    said = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    if str(site) not in said.stdout:
        sys.exit(f"another module was imported: {said.stdout}")


def main() -> None:
    """Build, check, say what was built."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--optimized", action="store_true")
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []])
    options = parser.parse_args()
    python = options.environment.resolve() / "bin" / "python"
    find = "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name('zig'))"
    zig = Path(subprocess.check_output([python, "-c", find], text=True).strip())
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = str(options.folder.resolve() / "zig-cache")
    for name in options.targets or TARGETS:
        target, folder = TARGETS[name], options.folder.resolve() / name
        module = build(zig, target, folder, options.optimized)
        subprocess.run([python, HERE / "imports.py", name, PYTHON_NAMES, module], check=True)
        if options.optimized:  # otherwise nothing is inlined
            check_code(python, folder)
        if (target.system, target.processor) == (platform.system(), platform.machine()):
            run_here(module, folder)
        print(f"{name}: {module.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
