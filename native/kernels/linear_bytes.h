// Panels of bytes for prompts (linear_prompt.h): 8-bit weights, 8-bit inputs. One instruction makes
// twice the products of words.
//
// A strip's vector holds four weights of every row, ready to meet four inputs of one column.
// Weights are stored plus 128, because the instruction multiplies unsigned bytes by signed ones. A
// sum starts at minus 128 times the sum of its inputs, so that it ends as the sum of the products.
// It is exact, and meets its float factor once per group of 16 or 32 weights.
//
// Inputs have one scale per 32 values. llama.cpp has one per 256 for the formats in blocks of 256
// weights, which use these panels; the error is a fifth of that, as KL divergence.
#pragma once

#include "kernels/linear_prompt.h"

namespace ingot::INGOT_ISA {

inline constexpr int kByteGroup = 32;  // inputs that share a scale
inline constexpr int kByteOffset = 128;

// 256 inputs of a column, as large as an InputBlock: see byte_blocks().
struct alignas(64) ByteBlock {
  int8_t values[kInputBlock];             // x = scale * value
  float scale[kInputBlock / kByteGroup];  // of 32 values
  float sum32[kInputBlock / 32];          // scale * the sum of 32 values
  float sum16[kInputBlock / 16];
  int32_t start32[kInputBlock / 32];  // -kByteOffset * the sum of 32 values
  int32_t start16[kInputBlock / 16];
  uint8_t unused[sizeof(InputBlock) - 480];
};
static_assert(sizeof(ByteBlock) == sizeof(InputBlock));

// Columns may be wanted as words, too: the byte blocks of a stretch follow its InputBlocks.
inline int64_t both_quantized_bytes(int64_t width) { return 2 * quantized_bytes(width); }

inline ByteBlock* byte_blocks(uint8_t* quantized, int64_t stride) {
  return reinterpret_cast<ByteBlock*>(quantized + stride / 2);
}

INGOT_FLATTEN inline void quantize_bytes(const float* x, ByteBlock& block) {
  int32_t largest[kInputBlock / 16], total[kInputBlock / 16];
  largest_bits(x, largest);
  InputScale scale[kInputBlock / kByteGroup];
  for (int g = 0; g < kInputBlock / kByteGroup; ++g) {
    scale[g] = input_scale<127>(std::max(largest[2 * g], largest[2 * g + 1]));
    block.scale[g] = scale[g].scale;
  }
  reduce_sixteens(
      [&](int i) {
        const simd::Ints q = scale[i / kByteGroup].round(x + i);
        simd::store_bytes(block.values + i, q);
        return q;
      },
      [](simd::Ints a, simd::Ints b) { return simd::add(a, b); }, total);
  for (int i = 0; i < kInputBlock / 16; ++i) {
    block.sum16[i] = block.scale[i / 2] * static_cast<float>(total[i]);
    block.start16[i] = -kByteOffset * total[i];
  }
  for (int g = 0; g < kInputBlock / 32; ++g) {
    const int32_t both = total[2 * g] + total[2 * g + 1];
    block.sum32[g] = block.scale[g] * static_cast<float>(both);
    block.start32[g] = -kByteOffset * both;
  }
}

// A column whose width is a multiple of 256, as are the rows of the weights it meets.
inline void quantize_byte_column(const float* x, int64_t width, uint8_t* quantized, int64_t stride,
                                 int64_t index) {
  for (; width >= kInputBlock; width -= kInputBlock, x += kInputBlock, quantized += stride)
    quantize_bytes(x, byte_blocks(quantized, stride)[index]);
}

struct alignas(64) ByteStrip {
  uint8_t weights[kInputBlock / 4][simd::kLanes][4];  // q + kByteOffset
  float factor[16][simd::kLanes];                     // of each group
  float min[16][simd::kLanes];
};

// Weights that are multiplied by one factor.
template <class F>
inline constexpr int kByteFactorGroup = F::kGroup < 32 ? 16 : 32;

// One block of `rows` rows. Where rows run out, lanes repeat the last one.
template <class F>
inline void unpack_byte_strip(const uint8_t* blocks, int64_t row_bytes, int rows,
                              ByteStrip& strip) {
  constexpr int kGroup = kByteFactorGroup<F>;
  const uint8_t* row[simd::kLanes];
  Signs<F> signs[simd::kLanes];
  for (int r = 0; r < simd::kLanes; ++r) {
    row[r] = blocks + (r < rows ? r : rows - 1) * row_bytes;
    const auto s = F::scales(row[r]);
    signs[r] = signs_of<F>(row[r]);
    for (int i = 0; i < kInputBlock / kGroup; ++i) {
      const int g = i * kGroup / F::kGroup;
      strip.factor[i][r] = s.d * static_cast<float>(s.scale[g]);
      if constexpr (F::kHasMin) strip.min[i][r] = s.m * static_cast<float>(s.min[g]);
    }
  }
  constexpr int kSlicesAtOnce = simd::kLanes / 8;
  repeat<F::kSlices / kSlicesAtOnce>([&](auto part) {
    simd::Pairs quads[simd::kLanes];
    for (int r = 0; r < simd::kLanes; ++r) {
      simd::U8x32 slices[kSlicesAtOnce];
      repeat<kSlicesAtOnce>([&](auto i) {
        slices[i] =
            lanes_of<F, part * kSlicesAtOnce + i>(row[r], signs[r]) ^ simd::splat(kByteOffset);
      });
      quads[r] = simd::as_pairs(slices);
    }
    simd::transpose(quads);
    for (int i = 0; i < simd::kLanes; ++i)
      simd::store_pairs(reinterpret_cast<int16_t*>(strip.weights[part * simd::kLanes + i]),
                        quads[i]);
  });
}

// Adds a stretch of kTall strips times kWide columns to the results.
template <int kGroup, bool kHasMin, int kTall, int kWide>
INGOT_FLATTEN [[gnu::noinline]] void byte_tile(const ByteStrip* strips,
                                               const ByteBlock* const (&inputs)[kWide],
                                               float* results) {
  const auto result = [&](int s, int c) { return results + c * kPanelRows + s * simd::kLanes; };
  simd::Floats total[kTall][kWide];
  repeat<kTall>([&](auto s) {
    repeat<kWide>([&](auto c) { total[s][c] = simd::load_floats(result(s, c)); });
  });
  for (int g = 0; g < kInputBlock / kGroup; ++g) {
    simd::Ints sums[kTall][kWide];
    repeat<kWide>([&](auto c) {
      const simd::Ints start =
          simd::splat_int(kGroup == 32 ? inputs[c]->start32[g] : inputs[c]->start16[g]);
      repeat<kTall>([&](auto s) { sums[s][c] = start; });
    });
    repeat<kGroup / 4>([&](auto i) {
      const int quad = g * kGroup / 4 + i;
      simd::Pairs weights[kTall];
      repeat<kTall>([&](auto s) {
        weights[s] = simd::load_pairs(reinterpret_cast<const int16_t*>(strips[s].weights[quad]));
      });
      repeat<kWide>([&](auto c) {
        const simd::Pairs x =
            simd::splat_pair(reinterpret_cast<const int16_t*>(inputs[c]->values + 4 * quad));
        repeat<kTall>([&](auto s) { sums[s][c] = simd::dot_bytes(sums[s][c], weights[s], x); });
      });
    });
    simd::Floats factor[kTall];
    repeat<kTall>([&](auto s) { factor[s] = simd::load_floats(strips[s].factor[g]); });
    repeat<kWide>([&](auto c) {
      const simd::Floats scale = simd::splat_float(inputs[c]->scale[g * kGroup / kByteGroup]);
      repeat<kTall>([&](auto s) {
        total[s][c] = simd::multiply_add(simd::to_floats(sums[s][c]),
                                         simd::multiply(factor[s], scale), total[s][c]);
      });
    });
    if constexpr (kHasMin) {
      simd::Floats min[kTall];
      repeat<kTall>([&](auto s) { min[s] = simd::load_floats(strips[s].min[g]); });
      repeat<kWide>([&](auto c) {
        const simd::Floats x =
            simd::splat_float(kGroup == 32 ? inputs[c]->sum32[g] : inputs[c]->sum16[g]);
        repeat<kTall>([&](auto s) { total[s][c] = simd::multiply_add(min[s], x, total[s][c]); });
      });
    }
  }
  repeat<kTall>(
      [&](auto s) { repeat<kWide>([&](auto c) { simd::store(result(s, c), total[s][c]); }); });
}

// The panel of a format in blocks of 256 weights.
template <class F>
struct BytePanel {
  using Format = F;
  using Strip = ByteStrip;
  using Input = ByteBlock;
  // Integer and float sums of a tile fill 24 of 32 registers. Plain C++ has no use for tiles.
  static constexpr int kTileStrips = simd::kLanes == 16 ? 3 : 1;
  static constexpr int kTileColumns = simd::kLanes == 16 ? 4 : 1;

  static const Input* inputs(const LinearInput& input) {
    return byte_blocks(const_cast<uint8_t*>(input.quantized), input.quantized_stride);
  }
  static void unpack(const uint8_t* blocks, int64_t row_bytes, int rows, int, Strip& strip) {
    unpack_byte_strip<F>(blocks, row_bytes, rows, strip);
  }
  template <int kTall, int kWide>
  static void tile(const Strip* strips, const Input* const (&inputs)[kWide], int, float* results) {
    byte_tile<kByteFactorGroup<F>, F::kHasMin, kTall, kWide>(strips, inputs, results);
  }
};

}  // namespace ingot::INGOT_ISA
