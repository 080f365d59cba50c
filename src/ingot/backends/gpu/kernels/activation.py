"""Functions of one number, inside kernels."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.codes import activation_code
from ingot.graph.ops import Activation

SILU = tl.constexpr(activation_code(Activation.SILU))
GELU = tl.constexpr(activation_code(Activation.GELU))
GELU_TANH = tl.constexpr(activation_code(Activation.GELU_TANH))
RELU_SQUARED = tl.constexpr(activation_code(Activation.RELU_SQUARED))
CLAMPED_SWIGLU = tl.constexpr(activation_code(Activation.CLAMPED_SWIGLU))
TANH = tl.constexpr(activation_code(Activation.TANH))
SOFTPLUS = tl.constexpr(activation_code(Activation.SOFTPLUS))
SIGMOID = tl.constexpr(activation_code(Activation.SIGMOID))
RELU = tl.constexpr(activation_code(Activation.RELU))


@triton.jit
def tanh(x):
    """Through an exponential that cannot overflow."""
    small = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - small) / (1.0 + small)
    return tl.where(x < 0, -size, size)


@triton.jit
def activate(x, KIND: tl.constexpr):
    """The activation of a kind."""
    if KIND == SILU:
        return x / (1.0 + tl.exp(-x))
    elif KIND == GELU:
        return x * (1.0 + tl.erf(x * 0.7071067811865476)) * 0.5
    elif KIND == GELU_TANH:
        return x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) * 0.5
    elif KIND == RELU_SQUARED:
        return tl.maximum(x, 0.0) * tl.maximum(x, 0.0)
    elif KIND == CLAMPED_SWIGLU:
        limited = tl.minimum(x, 7.0)
        return limited / (1.0 + tl.exp(-1.702 * limited))
    elif KIND == TANH:
        return tanh(x)
    elif KIND == SOFTPLUS:
        return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
    elif KIND == SIGMOID:
        return 1.0 / (1.0 + tl.exp(-x))
    elif KIND == RELU:
        return tl.maximum(x, 0.0)
    else:
        return x


@triton.jit
def activate_pair(gate, up, KIND: tl.constexpr):
    """The activation of a gate, times what it lets through."""
    if KIND == CLAMPED_SWIGLU:
        up = tl.minimum(tl.maximum(up, -7.0), 7.0) + 1.0
    return activate(gate, KIND) * up
