"""Refuse to run mixed with the unrelated package `ingot` of the index (ours is `ingot-llm`).

Both install into a folder named `ingot`, so one overwrites files of the other. Whichever came
last, an import of ours says so at once. It imports nothing of Ingot.
"""

import os
from types import ModuleType

DISTRIBUTION = "ingot-llm"

_MIXED = (
    "the unrelated package 'ingot' is installed in the same place as 'ingot-llm', and their files "
    "have mixed; run `pip uninstall ingot ingot-llm`, then `pip install ingot-llm`"
)


def check_alone(package_file: str) -> None:
    """Raise ImportError if the folder that holds the package also lists the other one."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(package_file)))  # noqa: PTH100, PTH120
    if any(_is_namesake(name) for name in os.listdir(folder)):  # noqa: PTH208 (0.1 ms, no import)
        raise ImportError(_MIXED)


def check_ours(package: ModuleType) -> None:
    """Raise ImportError if `import ingot` gave the other package."""
    if getattr(package, "__distribution__", None) != DISTRIBUTION:
        raise ImportError(_MIXED)


def _is_namesake(name: str) -> bool:
    return name.startswith("ingot-") and name.endswith((".dist-info", ".egg-info"))
