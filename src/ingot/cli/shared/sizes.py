"""Sizes of files as options: 300M, 2G, 4.5GB."""

import re

from ingot.errors import ConfigError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)B?", re.IGNORECASE)


def parse_size(option: str, text: str) -> int:
    """The bytes that the text of an option means."""
    match = _SIZE.fullmatch(text)
    if match is None or not (found := int(float(match[1]) * _UNITS[match[2].upper()])):
        raise ConfigError(f"{option} is {text!r}; it must be a size like 300M or 2G")
    return found
