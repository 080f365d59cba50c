"""Functions of one number, inside kernels."""

import triton
import triton.language as tl

NONE = tl.constexpr(0)
SILU = tl.constexpr(1)
GELU = tl.constexpr(2)
GELU_TANH = tl.constexpr(3)
RELU_SQUARED = tl.constexpr(4)
CLAMPED_SWIGLU = tl.constexpr(5)
TANH = tl.constexpr(6)
SOFTPLUS = tl.constexpr(7)


@triton.jit
def tanh(x):
    """Through an exponential that cannot overflow."""
    small = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - small) / (1.0 + small)
    return tl.where(x < 0, -size, size)


@triton.jit
def activate(x, KIND: tl.constexpr):
    """The activation of a kind."""
    if KIND == 1:
        return x / (1.0 + tl.exp(-x))
    elif KIND == 2:
        return x * (1.0 + tl.erf(x * 0.7071067811865476)) * 0.5
    elif KIND == 3:
        return x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) * 0.5
    elif KIND == 4:
        return tl.maximum(x, 0.0) * tl.maximum(x, 0.0)
    elif KIND == 6:
        return tanh(x)
    elif KIND == 7:
        return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
    else:
        return x


@triton.jit
def activate_pair(gate, up, KIND: tl.constexpr):
    """The activation of a gate, times what it lets through."""
    if KIND == 5:
        gate = tl.minimum(gate, 7.0)
        up = tl.minimum(tl.maximum(up, -7.0), 7.0) + 1.0
        return gate / (1.0 + tl.exp(-1.702 * gate)) * up
    else:
        return activate(gate, KIND) * up
