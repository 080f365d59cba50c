"""What a block of bytes means: one class per format, and the native codecs.

`decode` and `encode` work on whole tensors in native code; `format_of(type)` gives the
class that draws a format's layout and decodes (some: encodes) it in NumPy.
"""

from typing import TYPE_CHECKING, Any

from ingot.quant.block import BlockFormat
from ingot.quant.codec import decode, encode, require_encodable

if TYPE_CHECKING:
    from ingot.quant.registry import format_of as format_of
    from ingot.quant.registry import formats as formats

__all__ = ["BlockFormat", "decode", "encode", "format_of", "formats", "require_encodable"]


def __getattr__(name: str) -> Any:
    # The classes of all formats, which running a model does not need: on first use.
    if name not in ("format_of", "formats"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ingot.quant import registry  # noqa: PLC0415

    return getattr(registry, name)
