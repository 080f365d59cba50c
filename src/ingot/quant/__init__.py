"""What a block of bytes means: one class per format, and the native codecs.

`decode` and `encode` work on whole tensors in native code; `format_of(type)` gives the
class that draws a format's layout and decodes (some: encodes) it in NumPy.
"""

from ingot.quant.block import BlockFormat
from ingot.quant.codec import decode, encode
from ingot.quant.registry import format_of, formats

__all__ = ["BlockFormat", "decode", "encode", "format_of", "formats"]
