"""What attention adds to scores by the distance from query to key: buckets and slopes.

Numbers of a file come in, constants of operations go out. Knows no tensors.
"""

import math

import numpy as np


def bucket_of_distances(buckets: int, reach: int, *, both_ways: bool) -> tuple[int, ...]:
    """The bucket of each distance from -reach to reach; keys before their query are negative.

    A half of the buckets is for short distances, one each; the others are for ranges that grow
    with the logarithm of the distance. If keys may come after their query, they have the second
    half of all buckets.
    """
    distances = np.arange(-reach, reach + 1)
    first = np.zeros_like(distances)
    if both_ways:
        buckets //= 2
        first = np.where(distances > 0, buckets, 0)
        lengths = np.abs(distances)
    else:
        lengths = np.maximum(-distances, 0)
    exact = buckets // 2
    # In float32, as models are trained: it decides in which bucket a power of two is.
    far = np.log(np.maximum(lengths, 1).astype(np.float32) / np.float32(exact))
    far = far / np.float32(math.log(reach / exact)) * np.float32(buckets - exact)
    logarithmic = np.minimum(exact + far.astype(np.int64), buckets - 1)
    return tuple((first + np.where(lengths < exact, lengths, logarithmic)).tolist())


def alibi_slopes(heads: int, largest: float = 8.0) -> tuple[float, ...]:
    """The slopes of ALiBi: powers of one number, from 2^(-largest / heads) to 2^-largest.

    If `heads` is no power of two, those of the power below, and every other one of twice as many.
    """
    whole = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-largest * (head + 1) / whole) for head in range(whole)]
    slopes += [2.0 ** (-largest * (2 * i + 1) / (2 * whole)) for i in range(heads - whole)]
    return tuple(slopes)
