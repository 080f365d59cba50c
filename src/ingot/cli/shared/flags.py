"""Groups of command-line options, declared once as a dataclass and used by several commands.

A command declares a parameter whose type is such a dataclass; typer sees its fields as options.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any


def takes_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a group of options by these options."""
    groups: dict[str, tuple[Any, tuple[str, ...]]] = {}
    options: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        group = parameter.annotation
        if isinstance(group, type) and is_dataclass(group):
            flags = signature(group).parameters
            groups[parameter.name] = (group, tuple(flags))
            options += flags.values()
        else:
            options.append(parameter)

    @wraps(command)
    def with_flags(**given: Any) -> None:
        made = {
            name: group(**{flag: given.pop(flag) for flag in flags})
            for name, (group, flags) in groups.items()
        }
        command(**made, **given)

    with_flags.__dict__["__signature__"] = signature(command).replace(parameters=options)
    return with_flags
