"""Names for the arrays that travel through the code."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int32]  # token ids, positions, counts
Floats: TypeAlias = NDArray[np.float32]
Logits: TypeAlias = Floats  # [rows, vocabulary], or one row
