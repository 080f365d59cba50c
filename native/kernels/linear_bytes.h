// Matrix products of 8-bit weights and 8-bit inputs: panels for prompts (linear_prompt.h) and for
// generation with many columns; linear_strips.h has a few. One instruction makes twice the products
// of words.
//
// A sum of products is exact, and meets its float factor once per group of 16 or 32 weights. Inputs
// have one scale per 32.
// Every kernel here adds the groups of a row in the same order, so a result does not depend on how
// many columns there are, nor on the phase: a stretch's first bytes, then the sum of its second
// ones.
#pragma once

#include "kernels/byte_group.h"
#include "kernels/linear_prompt.h"
#include "kernels/matmul_tile.h"

namespace ingot::INGOT_ISA {

// The sum of a group before the first product.
template <ByteShape shape>
inline simd::Ints start_of_group(const ByteGroup& inputs, int offset) {
  if constexpr (shape.has_offset) {
    return simd::splat_int(-offset * inputs.total);
  } else {
    return simd::zero_ints();
  }
}

// Adds a group of every row to the total; `factor` and `min` give those of its weights. Where
// groups go together (kTogether), the products of the first ones under their factors wait in
// `scaled` for the last one, and meet the scale of their inputs with it.
template <ByteShape shape, bool last = true, class Factor, class Min>
inline void add_group(simd::Ints sum, Factor factor, Min min, const ByteGroup& inputs,
                      simd::Floats& scaled, simd::Floats& total) {
  const simd::Floats floats = simd::to_floats(sum);
  if constexpr (kTogether<shape> == 1) {
    total = simd::multiply_add(floats, simd::multiply(factor(), simd::splat_float(inputs.scale)),
                               total);
  } else if constexpr (!last) {
    scaled = simd::multiply(floats, factor());
  } else {
    scaled = simd::multiply_add(floats, factor(), scaled);
    total = simd::multiply_add(scaled, simd::splat_float(inputs.scale), total);
  }
  if constexpr (shape.has_min)
    total = simd::multiply_add(min(), simd::splat_float(inputs.sum), total);
}
template <ByteShape shape, bool last = true>
inline void add_group(simd::Ints sum, const StripFactors& factors, int g, const ByteGroup& inputs,
                      simd::Floats& scaled, simd::Floats& total) {
  add_group<shape, last>(
      sum, [&] { return simd::load_floats(factors.factor[g]); },
      [&] { return simd::load_floats(factors.min[g]); }, inputs, scaled, total);
}

inline simd::Fours strip_quad(const ByteStrip& strip, int quad) {
  return simd::load_fours(strip.weights[quad][0]);
}

// Adds a stretch of kTall strips times kWide columns to the results: so many groups of it.
template <ByteShape shape, int kTall, int kWide>
INGOT_FLATTEN [[gnu::noinline]] void byte_tile(const ByteStrip* strips,
                                               const ByteBlock* const (&inputs)[kWide], int groups,
                                               int offset, float* results) {
  constexpr int kQuads = shape.group / 4;
  const auto result = [&](int s, int c) { return results + c * kPanelRows + s * simd::kLanes; };
  simd::Floats total[kTall][kWide];
  repeat<kTall>([&](auto s) {
    repeat<kWide>([&](auto c) { total[s][c] = simd::load_floats(result(s, c)); });
  });
  const auto add = [&](int g, auto last, simd::Floats(&scaled)[kTall][kWide]) {
    simd::Ints sums[kTall][kWide];
    simd::Parts parts[kTall][kWide];
    repeat<kWide>([&](auto c) {
      const simd::Ints start = start_of_group<shape>(group_of<shape>(*inputs[c], g), offset);
      repeat<kTall>([&](auto s) { sums[s][c] = start; });
    });
    repeat<kQuads>([&](auto i) {
      simd::Fours weights[kTall];
      repeat<kTall>([&](auto s) { weights[s] = strip_quad(strips[s], g * kQuads + i); });
      repeat<kWide>([&](auto c) {
        const auto x = group_of<shape>(*inputs[c], g).template quad<i>();
        repeat<kTall>([&](auto s) {
          simd::add_quad<shape.most, i, kQuads>(sums[s][c], parts[s][c], weights[s], x);
        });
      });
    });
    repeat<kTall>([&](auto s) {
      repeat<kWide>([&](auto c) {
        add_group<shape, last>(sums[s][c], strips[s].factors, g, group_of<shape>(*inputs[c], g),
                               scaled[s][c], total[s][c]);
      });
    });
  };
  for (int g = 0; g < groups; g += kTogether<shape>) {
    simd::Floats scaled[kTall][kWide];
    repeat<kTogether<shape>>(
        [&](auto i) { add(g + i, std::bool_constant < i == kTogether<shape> - 1 > {}, scaled); });
  }
  if constexpr (shape.seconds) {
    repeat<kWide>([&](auto c) {
      const SecondBytes* second = inputs[c]->second;
      simd::Floats seconds[kTall];
      repeat<kTall>([&](auto s) { seconds[s] = simd::zero_floats(); });
      for (uint32_t left = inputs[c]->seconds; left != 0; left &= left - 1) {
        const int g = std::countr_zero(left);
        const ByteGroup group = second_group(*second++);
        simd::Ints sums[kTall];
        simd::Parts parts[kTall];
        repeat<kTall>([&](auto s) { sums[s] = start_of_group<shape>(group, offset); });
        repeat<kQuads>([&](auto i) {
          repeat<kTall>([&](auto s) {
            simd::add_quad<shape.most, i, kQuads>(
                sums[s], parts[s], strip_quad(strips[s], g * kQuads + i), group.template quad<i>());
          });
        });
        repeat<kTall>([&](auto s) {
          simd::Floats scaled;
          add_group<shape>(sums[s], strips[s].factors, g, group, scaled, seconds[s]);
        });
      }
      repeat<kTall>([&](auto s) { total[s][c] = simd::add(total[s][c], seconds[s]); });
    });
  }
  repeat<kTall>(
      [&](auto s) { repeat<kWide>([&](auto c) { simd::store(result(s, c), total[s][c]); }); });
}

// Rows as the file has them.
template <class F>
struct BytePanel : FileRows<F> {
  using Input = ByteBlock;
  // Integer and float sums of a tile fill 24 of 32 registers with AVX-512, and so do those of a
  // smaller tile without VNNI, which has sums of 16 bits beside the others, or of groups that wait
  // for each other. AVX2 has 16 registers.
  // NEON has 32 of half the width, and takes inputs from lanes. Plain C++ has no use for tiles.
#if defined(__AVX512VNNI__)
  static constexpr int kTileStrips = kTogether<kByteShape<F>> == 1 ? 3 : 2, kTileColumns = 4;
#elif defined(__AVX512F__)
  static constexpr int kTileStrips = 2, kTileColumns = 4;
#elif defined(__AVX2__)
  static constexpr int kTileStrips = 2, kTileColumns = 2;
#elif defined(INGOT_NEON)
  static constexpr int kTileStrips = 1, kTileColumns = 4;
#else
  static constexpr int kTileStrips = 1, kTileColumns = 1;
#endif
#if defined(INGOT_MATMUL)
  using Strip = MatmulStrip;
#else
  using Strip = ByteStrip;
#endif

  static const Input* inputs(const LinearInput& input) { return byte_blocks(input); }
  static void unpack(const uint8_t* blocks, int64_t row_bytes, int rows, int count, Strip& strip) {
    unpack_byte_strip<F>(blocks, row_bytes, rows, count, strip);
  }
  template <int kTall, int kWide>
  static void tile(const Strip* strips, const Input* const (&inputs)[kWide], int depth,
                   float* results) {
    const int groups = depth / kByteShape<F>.group;
#if defined(INGOT_MATMUL)
    matmul_tile<kByteShape<F>, kWide>(*strips, inputs, groups, results);
#else
    byte_tile<kByteShape<F>, kTall, kWide>(strips, inputs, groups, kByteOffset<F>, results);
#endif
  }
};

}  // namespace ingot::INGOT_ISA
