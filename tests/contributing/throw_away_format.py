"""A throw-away block format: one header, one class and its lines in the registry.

`RUN` uses it on the CPU and `ON_A_GPU` packs it as a GPU does.
"""

from contributing.changed_tree import Change, ChangedTree

HEADER = """// T4: 32 weights in 18 bytes, 4.5 bits each.
//
//   0..15   qs  nibbles: byte i holds weight i (low) and weight i+16 (high)
//   16..17  d   f16
//
//   w = d * (nibble - 8)
#pragma once

#include <cmath>

#include "formats/small_blocks.h"
#include "simd/half.h"

namespace ingot::INGOT_ISA {

struct T4 : BlockFormat<Layout{
                .type = TensorType{60}, .weights = 32, .bytes = 18, .group = 32, .max_word = 8}> {
  static Scales<1> scales(const uint8_t* block) { return {load_f16(block + 16), 0, {1}, {}}; }

  template <int slice>
  static simd::U8x32 lanes(const uint8_t* block) {
    return simd::nibbles(simd::load16(block)) - simd::splat(8);
  }

  static void paired_lanes(const uint8_t* a, const uint8_t* b, simd::U8x32 (&out)[2]) {
    paired_nibbles<0>(a, b, out);
    for (simd::U8x32& lanes : out) lanes = lanes - simd::splat(8);
  }

  static BlockFactors block_factors(const uint8_t* blocks) {
    return {simd::load_halves_at(blocks + 16, kBytes), simd::zero_floats()};
  }

  static void encode(const float* weights, uint8_t* blocks, int64_t count) {
    for (; count > 0; --count, weights += 32, blocks += kBytes) {
      float largest = 0;
      for (int i = 0; i < 32; ++i) largest = std::fmax(largest, std::fabs(weights[i]));
      const uint16_t d = simd::float_to_half_bits(largest / 7);
      const float inverse = largest > 0 ? 7 / largest : 0;
      const auto code = [&](int i) {
        return static_cast<int>(std::lround(weights[i] * inverse)) + 8;
      };
      for (int i = 0; i < 16; ++i) blocks[i] = static_cast<uint8_t>(code(i) | code(i + 16) << 4);
      std::memcpy(blocks + 16, &d, 2);
    }
  }
};

}  // namespace ingot::INGOT_ISA
"""
CLASS = '''"""A throw-away format."""

from ingot.quant.bits import fields, half_at
from ingot.arrays import Bytes
from ingot.quant.block import BlockFormat, Coding, Parts


class T4(BlockFormat):
    """4.5 bits per weight: w = d * (q - 8).

    ```
    0..15   qs  nibbles
    16..17  d   f16
    ```
    """

    coding = Coding(bits=4, group=32, zero=8)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        return Parts(fields(blocks[:, :16], 4), half_at(blocks, 16))
'''
RUN = """
import sys
from pathlib import Path

import numpy as np

from ingot import _native
from ingot.backends.reference import Reference
from ingot.gguf import GgmlType, GgufLoader
from ingot.models import build_graph
from ingot.quant import decode, encode, format_of
from models.tiny_models import Fixture
from run_batches import Runner

assert _native.instruction_sets() == ["scalar"]
type = GgmlType["T4"]
assert (type.block_size, type.block_bytes) == (32, 18)
rng = np.random.default_rng(4)
blocks = rng.integers(0, 256, (300, 18), np.uint8)
blocks[:, 16:] = rng.standard_normal((300, 1)).astype(np.float16).view(np.uint8)
decoded = decode(blocks, type)
np.testing.assert_array_equal(decoded, format_of(type).decode_blocks(blocks).reshape(-1))
assert decoded.std() > 1
weights = rng.standard_normal((8, 64)).astype(np.float32)
np.testing.assert_allclose(decode(encode(weights, type), type, (8, 64)), weights, atol=0.35)

# A model whose matrices are of this format, against the reference on the same bytes.
fixture = Fixture.load("llama")
with GgufLoader(fixture.write(Path(sys.argv[1]) / "model.gguf", type)) as model:
    assert sum(tensor.type is type for tensor in model.tensors.values()) > 3
    graph = build_graph(model)
    expected = Reference(graph, model, np.float64).forward(fixture.token_ids)
    for generated in (0, 9):
        found = Runner(graph, model).run(fixture.token_ids, generated=generated)
        np.testing.assert_allclose(found, expected, atol=1e-2)
"""
ON_A_GPU = """
import numpy as np
import torch

from ingot.backends.gpu.planes import form_of, read_codes
from ingot.gguf import GgmlType
from ingot.quant import decode, format_of

type = GgmlType["T4"]
assert form_of(type).bits == 4  # the weights stay in four bits
blocks = np.random.default_rng(4).integers(0, 100, (3, 2 * 18), np.uint8)
found = read_codes(torch.from_numpy(blocks), format_of(type))
weights = (found.codes.float() - 8) * found.scales.repeat_interleave(32, 1)
np.testing.assert_array_equal(weights.numpy(), decode(blocks, type, (3, 64)))
"""


def add_format(tree: ChangedTree) -> Change:
    """Add it to a copy of the sources."""
    change = tree.follow("Add a block format")
    change.add("native/formats/t4.h", HEADER)
    change.add("src/ingot/quant/throw_away.py", CLASS)
    registry = "native/formats/all.h"
    change.insert(registry, '#include "formats/tq1_0.h"\n', '#include "formats/t4.h"\n')
    change.insert(registry, "  X(Q4_0) ", "  X(T4) \\\n")
    return change
