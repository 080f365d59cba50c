"""Open a model file and look inside; tensor data is read only when it is used.

python examples/look_inside.py [MODEL]
"""

import sys

from ingot import GgufLoader, store
from ingot.quant import decode

path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")

with GgufLoader(path) as model:
    print(model.metadata.string("general.architecture"), "with", len(model.tensors), "tensors")
    tensor = model.tensors["token_embd.weight"]
    print(tensor.name, tensor.type.name, tensor.shape, tensor.nbytes, "bytes")

    row_bytes = tensor.nbytes // tensor.shape[0]
    first_row = decode(tensor.data[:row_bytes], tensor.type)
    print("the first token's embedding begins with", first_row[:4])
