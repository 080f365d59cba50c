"""Planes say what the blocks of the file say: unpacked by hand, and from any bytes."""

import numpy as np
import pytest
import torch

from ingot.backends.gpu.planes import form_of, read_codes
from ingot.gguf import GgmlType
from ingot.quant import decode, format_of, formats

MIDDLES = {4: 8, 5: 16, 6: 32, 8: 128}
TABLES = {
    GgmlType.IQ4_NL: [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113],
    GgmlType.MXFP4: [v * s * 2.0**-14 for s in (1, -1) for v in (0, 0.5, 1, 1.5, 2, 3, 4, 6)],
}
TABLES[GgmlType.IQ4_XS] = TABLES[GgmlType.IQ4_NL]
BITS = {GgmlType.Q5_0: 5, GgmlType.Q5_1: 5, GgmlType.Q5_K: 5, GgmlType.Q6_K: 6, GgmlType.Q8_0: 8}


CODED = [type for type, format in formats().items() if format.coding is not None]


def test_formats_that_stay_quantized() -> None:
    expected = (
        "Q1_0 Q2_0 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()  # noqa: SIM905
    )
    assert {type.name for type in GgmlType if form_of(type).bits < 16} == set(expected)


@pytest.mark.parametrize("type", CODED)
def test_codes_and_scales(type: GgmlType) -> None:
    rng = np.random.default_rng(int(type))
    raw = rng.integers(0, 256, (3, 2 * type.block_bytes), np.uint8)
    if type is GgmlType.MXFP4:
        raw[:, 0 :: type.block_bytes] = rng.integers(100, 140, (3, 2))
    expected = decode(raw, type, (3, 2 * type.block_size)).astype(np.float64)
    found = read_codes(torch.from_numpy(raw), format_of(type))
    groups = found.scales.shape[1]
    scales = found.scales.double().repeat_interleave(expected.shape[1] // groups, 1)
    if type in TABLES:
        numbers = torch.tensor(TABLES[type], dtype=torch.float64)[found.codes.long()]
    else:
        numbers = found.codes.double() - MIDDLES[BITS.get(type, 4)]
    weights = numbers * scales
    if found.shifts is not None:
        weights += found.shifts.double().repeat_interleave(expected.shape[1] // groups, 1)
    finite = np.isfinite(expected)
    assert finite.mean() > 0.5
    rounding = 1e-6 * float(np.abs(expected[finite]).max())  # of what is added and taken away
    np.testing.assert_allclose(weights.numpy()[finite], expected[finite], rtol=2e-4, atol=rounding)
