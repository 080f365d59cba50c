"""Planes say what the blocks of the file say: unpacked by hand or by a kernel, from any bytes."""

import numpy as np
import pytest
import torch

from ingot.backends.gpu import find_device
from ingot.backends.gpu.kernels.rows import Embedding, embed_kernel
from ingot.backends.gpu.kernels.weights import LEVELS_FP4
from ingot.backends.gpu.planes import form_of, pack, read_codes
from ingot.gguf import GgmlType
from ingot.quant import decode, encode, format_of, formats

MIDDLES = {4: 8, 5: 16, 6: 32, 8: 128}
E2M1 = [v * s * 2.0**-14 for s in (1, -1) for v in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]  # as halves
BITS = {GgmlType.Q5_0: 5, GgmlType.Q5_1: 5, GgmlType.Q5_K: 5, GgmlType.Q6_K: 6, GgmlType.Q8_0: 8}


# A scale of these is a power of two or 11 bits, and a level keeps the product within 11 bits.
EXACT = ("NVFP4", "MXFP4", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0")

CODED = [type for type, format in formats().items() if format.coding is not None]


def test_formats_that_stay_quantized() -> None:
    expected = (
        "Q1_0 Q2_0 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 NVFP4 "
        "IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0 TQ2_0"
    )
    assert {type.name for type in GgmlType if form_of(type).bits < 16} == set(expected.split())


@pytest.mark.parametrize("type", CODED)
def test_codes_and_scales(type: GgmlType) -> None:
    rng = np.random.default_rng(int(type))
    raw = rng.integers(0, 256, (3, 2 * type.block_bytes), np.uint8)
    if type is GgmlType.MXFP4:
        raw[:, 0 :: type.block_bytes] = rng.integers(100, 140, (3, 2))
    levels = form_of(type).levels
    expected = decode(raw, type, (3, 2 * type.block_size)).astype(np.float64)
    found = read_codes(torch.from_numpy(raw), format_of(type))
    groups = found.scales.shape[1]
    scales = found.scales.double().repeat_interleave(expected.shape[1] // groups, 1)
    if levels:
        floats = form_of(type).level_kind == LEVELS_FP4.value
        table = torch.tensor(E2M1 if floats else levels, dtype=torch.float64)
        numbers = table[found.codes.long()]
    else:
        numbers = found.codes.double() - MIDDLES[BITS.get(type, 4)]
    weights = numbers * scales
    if found.shifts is not None:
        weights += found.shifts.double().repeat_interleave(expected.shape[1] // groups, 1)
    finite = np.isfinite(expected)
    assert finite.mean() > 0.5
    rounding = 1e-6 * float(np.abs(expected[finite]).max())  # of what is added and taken away
    np.testing.assert_allclose(weights.numpy()[finite], expected[finite], rtol=2e-4, atol=rounding)


@pytest.mark.parametrize("type", CODED)
def test_weights_as_kernels_read_them(type: GgmlType) -> None:
    """Every number of some rows, unpacked by the kernel of embeddings, is the file's.

    A scale and its product with a level are rounded to half floats, which some formats never need.
    """
    rng, device = np.random.default_rng(int(type)), find_device().torch
    asked = [0, 31, 39]
    rows, columns = 40, 256
    values = rng.standard_normal((rows, columns)) * np.exp(rng.uniform(-2, 2, (rows, 1)))
    raw = encode(values.astype(np.float32), type).reshape(rows, -1)
    expected = decode(raw, type, (rows, columns))[asked]
    planes = pack(
        torch.from_numpy(raw).to(device),
        type,
        columns,
        lambda size: torch.empty(size, dtype=torch.uint8, device=device),
    )
    ids = torch.tensor(asked, dtype=torch.int32, device=device)
    out = torch.empty(len(asked), columns, device=device)
    embed_kernel[planes.sizes.chunks, len(asked)](
        ids=ids,
        sampled=ids,
        positions=ids,
        types=ids,
        weights=planes.weights,
        embedding=Embedding(planes.factor, None, None, out, columns),
        FORM=planes.form,
        AHEAD=False,
        num_warps=1,
    )
    found = out.cpu().numpy()
    assert len(np.unique(np.abs(expected))) > 2
    if type.name in EXACT:
        np.testing.assert_array_equal(found, expected)
    else:
        largest = np.abs(expected).max(axis=1, keepdims=True)  # beside which a minimum is rounded
        assert (np.abs(found - expected) <= 2.0**-10 * (np.abs(expected) + largest)).all()
