"""Names for the arrays that travel through the code."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int32]  # token ids, positions, counts
Floats: TypeAlias = NDArray[np.float32]
Logits: TypeAlias = Floats  # [rows, vocabulary], or one row
HiddenRows: TypeAlias = Any  # [tokens, width]: Floats, or a tensor on the GPU that computed them
Integers: TypeAlias = NDArray[np.integer]  # bytes, as NumPy types what operators make of them
