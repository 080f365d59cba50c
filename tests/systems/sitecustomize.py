"""Python imports this at its start: Ingot then finds itself on the system of `SIMULATED_SYSTEM`.

Only modules of Ingot do. Python itself and other packages run as they are, so what Ingot asks of
the system must go through names that this one has, and modules that it has not fail to import.
"""

import builtins
import os
import sys
from typing import Any

if _system := os.environ.get("SIMULATED_SYSTEM"):
    import simulated

    _modules = simulated.SYSTEMS[_system]()
    _import = builtins.__import__

    def _is_ours(scope: Any) -> bool:
        scope = scope or {}
        file = scope.get("__file__") or ""
        return str(scope.get("__name__")).startswith("ingot") or "/src/ingot/" in file

    # Parameters of commands: typer knows no other class of paths than Python's.
    def _is_of_commands(name: str, scope: Any) -> bool:
        return name == "pathlib" and str((scope or {}).get("__name__")).startswith("ingot.cli")

    def _simulated_import(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        ours = _is_ours(globals) and not _is_of_commands(name, globals)
        if level == 0 and name in _modules and ours:
            if _modules[name] is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name not in simulated.ADDED:
                _import(name, globals, locals, fromlist, level)  # with its submodules
            return _modules[name]
        return _import(name, globals, locals, fromlist, level)

    def _audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/")):
            frame: Any = sys._getframe(1)
            while frame is not None:
                if _is_ours(frame.f_globals):
                    raise FileNotFoundError(2, "only Linux has it", arguments[0])
                frame = frame.f_back

    builtins.__import__ = _simulated_import
    sys.addaudithook(_audit)
