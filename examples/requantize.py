"""Copy a model and quantize its matrices to another format.

python examples/requantize.py MODEL NEW_FILE [TYPE]
"""

import sys

from ingot import GgufLoader, GgufWriter, store
from ingot.gguf import GgmlType
from ingot.quant import decode, encode

name, target, *rest = sys.argv[1:]
kind = GgmlType[rest[0] if rest else "Q8_0"]

with GgufLoader(store.resolve(name)) as model:
    writer = GgufWriter(target)
    for key in model.metadata:
        if key not in ("general.file_type", "general.alignment") and not key.startswith("split."):
            writer.add(key, model.metadata[key], model.metadata.entry(key).element_type)
    for tensor in model.tensors.values():
        if len(tensor.shape) == 2 and tensor.shape[-1] % kind.block_size == 0:
            values = decode(tensor.data, tensor.type, tensor.shape)
            writer.add_tensor(tensor.name, encode(values, kind), kind)
        else:
            writer.add_tensor(tensor.name, tensor.data, tensor.type, tensor.shape)
    print(*writer.write())
