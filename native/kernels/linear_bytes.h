// Matrix products of 8-bit weights and 8-bit inputs: panels for prompts (linear_prompt.h) and for
// generation with several columns, and strips of rows for one to three columns. One instruction
// makes twice the products of words.
//
// A sum of products is exact, and meets its float factor once per group of 16 or 32 weights.
// Every kernel here adds the groups of a row in the same order, so a result does not depend on how
// many columns there are, nor on the phase.
#pragma once

#include "kernels/byte_strip.h"
#include "kernels/linear_prompt.h"

namespace ingot::INGOT_ISA {

// What a tile needs from a format; not the format itself, so that formats share the code.
struct ByteShape {
  int group;  // weights that share a factor
  bool has_min;
  int offset;  // of the weights
  int most;    // of the weights; only AVX2 wants to know
};
template <class F>
inline constexpr ByteShape kByteShape{kByteFactorGroup<F>, F::kHasMin, kByteOffset<F>,
                                      simd::kMostByte == 255 ? 255 : F::kMost - F::kLeast};

// Whether the products of a format's weights fit the instructions.
template <class F>
inline constexpr bool kMultipliesBytes =
    F::kWeights == kInputBlock && F::kMost - F::kLeast <= simd::kMostByte;

// The sum of group g before the first product.
template <ByteShape shape>
inline simd::Ints start_of_group(const ByteBlock& input, int g) {
  if constexpr (shape.offset == 0) {
    return simd::zero_ints();
  } else {
    return simd::splat_int(-shape.offset *
                           (shape.group == 32 ? input.total32[g] : input.total16[g]));
  }
}

// Adds group g of a row to its total.
template <ByteShape shape>
inline simd::Floats add_group(simd::Ints sum, const StripFactors& factors, const ByteBlock& input,
                              int g, simd::Floats total) {
  const simd::Floats scale = simd::splat_float(input.scale[g * shape.group / kByteGroup]);
  total = simd::multiply_add(simd::to_floats(sum),
                             simd::multiply(simd::load_floats(factors.factor[g]), scale), total);
  if constexpr (shape.has_min) {
    const float inputs = shape.group == 32 ? input.sum32[g] : input.sum16[g];
    total = simd::multiply_add(simd::load_floats(factors.min[g]), simd::splat_float(inputs), total);
  }
  return total;
}

inline simd::Pairs splat_quad(const ByteBlock& input, int quad) {
  return simd::splat_pair(reinterpret_cast<const int16_t*>(input.values + 4 * quad));
}

// Adds a stretch of kTall strips times kWide columns to the results.
template <ByteShape shape, int kTall, int kWide>
INGOT_FLATTEN [[gnu::noinline]] void byte_tile(const ByteStrip* strips,
                                               const ByteBlock* const (&inputs)[kWide],
                                               float* results) {
  const auto result = [&](int s, int c) { return results + c * kPanelRows + s * simd::kLanes; };
  simd::Floats total[kTall][kWide];
  repeat<kTall>([&](auto s) {
    repeat<kWide>([&](auto c) { total[s][c] = simd::load_floats(result(s, c)); });
  });
  for (int g = 0; g < kInputBlock / shape.group; ++g) {
    simd::Ints sums[kTall][kWide];
    simd::Pairs parts[kTall][kWide];
    repeat<kWide>([&](auto c) {
      const simd::Ints start = start_of_group<shape>(*inputs[c], g);
      repeat<kTall>([&](auto s) { sums[s][c] = start; });
    });
    repeat<shape.group / 4>([&](auto i) {
      const int quad = g * shape.group / 4 + i;
      simd::Pairs weights[kTall];
      repeat<kTall>([&](auto s) {
        weights[s] = simd::load_pairs(reinterpret_cast<const int16_t*>(strips[s].weights[quad]));
      });
      repeat<kWide>([&](auto c) {
        const simd::Pairs x = splat_quad(*inputs[c], quad);
        repeat<kTall>([&](auto s) {
          simd::add_quad<shape.most, i, shape.group / 4>(sums[s][c], parts[s][c], weights[s], x);
        });
      });
    });
    repeat<kTall>([&](auto s) {
      repeat<kWide>([&](auto c) {
        total[s][c] = add_group<shape>(sums[s][c], strips[s].factors, *inputs[c], g, total[s][c]);
      });
    });
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
  // Integer and float sums of a tile fill 24 of 32 registers with AVX-512. AVX2 has 16, and sums of
  // 16 bits beside the others. Plain C++ has no use for tiles.
  static constexpr int kTileStrips = simd::kLanes == 16 ? 3 : kTurns<F> ? 2 : 1;
  static constexpr int kTileColumns = simd::kLanes == 16 ? 4 : kTurns<F> ? 2 : 1;

  static const Input* inputs(const LinearInput& input) { return byte_blocks(input); }
  static void unpack(const uint8_t* blocks, int64_t row_bytes, int rows, int, Strip& strip) {
    unpack_byte_strip<F>(blocks, row_bytes, rows, strip);
  }
  template <int kTall, int kWide>
  static void tile(const Strip* strips, const Input* const (&inputs)[kWide], int, float* results) {
    byte_tile<kByteShape<F>, kTall, kWide>(strips, inputs, results);
  }
};

#if defined(__AVX2__)
// One strip of rows times up to kColumns columns: what is unpacked stays in registers. Where there
// are fewer columns, the last one is repeated.
template <class F, int kColumns>
INGOT_FLATTEN void generate_strip(const uint8_t* weight, int64_t row_bytes, int rows,
                                  const LinearInput& input, float* out, int64_t out_stride) {
  constexpr ByteShape shape = kByteShape<F>;
  constexpr int kHalves = 32 / shape.group;  // groups of a slice
  const int columns = static_cast<int>(input.columns);
  const ByteBlock* inputs[kColumns];
  repeat<kColumns>([&](auto c) { inputs[c] = byte_blocks(input) + std::min<int>(c, columns - 1); });
  StripRows block(weight, row_bytes, rows);
  simd::Floats total[kColumns];
  repeat<kColumns>([&](auto c) { total[c] = simd::zero_floats(); });
  for (int64_t k = 0; k < input.width; k += kInputBlock) {
    const Turned<F> turned(block);
    StripFactors factors;
    read_turned_factors<F>(turned, factors);
    for_each_slice<F>([&](auto slice) {
      const simd::Quads weights = turned_weights<F, slice>(turned);
      repeat<kHalves>([&](auto half) {
        constexpr int g = slice * kHalves + half, kQuads = 8 / kHalves;
        repeat<kColumns>([&](auto c) {
          simd::Ints sum = start_of_group<shape>(*inputs[c], g);
          simd::Pairs part;
          repeat<kQuads>([&](auto i) {
            simd::add_quad<shape.most, i, kQuads>(
                sum, part, reinterpret_cast<simd::Pairs>(weights.v[half * kQuads + i]),
                splat_quad(*inputs[c], g * kQuads + i));
          });
          total[c] = add_group<shape>(sum, factors, *inputs[c], g, total[c]);
        });
      });
    });
    for (const uint8_t*& row : block.row) {
      prefetch_stretch<F>(row + simd::kLanes * row_bytes);
      row += F::kBytes;
    }
    repeat<kColumns>([&](auto c) { inputs[c] = next_stretch(inputs[c], input); });
  }
  repeat<kColumns>([&](auto c) {
    if (c >= columns) return;
    float results[simd::kLanes];
    simd::store(results, total[c]);
    std::memcpy(out + c * out_stride, results, static_cast<size_t>(rows) * sizeof(float));
  });
}

// More columns than this cost less in panels: strips keep a total of each in a register.
inline constexpr int kStripColumns = simd::kLanes / 2;

// In strips with the least kColumns that is enough: a power of two.
template <class F, int kColumns>
void generate_strips(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                     int64_t begin, int64_t end, float* out, int64_t out_stride) {
  if constexpr (kColumns < kStripColumns)
    if (input.columns > kColumns)
      return generate_strips<F, kColumns * 2>(weight, row_bytes, input, begin, end, out,
                                              out_stride);
  for (int64_t row = begin; row < end; row += simd::kLanes)
    generate_strip<F, kColumns>(weight + row * row_bytes, row_bytes,
                                static_cast<int>(std::min<int64_t>(end - row, simd::kLanes)), input,
                                out + row, out_stride);
}

template <class F>
void generate_bytes(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                    int64_t begin, int64_t end, float* out, int64_t out_stride, uint8_t* scratch) {
  if (input.columns > kStripColumns) {
    prompt_linear<BytePanel<F>>(weight, row_bytes, input, begin, end, out, out_stride, scratch);
  } else {
    generate_strips<F, 1>(weight, row_bytes, input, begin, end, out, out_stride);
  }
}
#endif

}  // namespace ingot::INGOT_ISA
