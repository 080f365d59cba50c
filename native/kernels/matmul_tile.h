// Tiles of matrix products for linear_bytes.h's panels, where the CPU multiplies small matrices of
// bytes (simd/matmul_neon.h). They do the same operations in the same order as byte_tile(), so
// results have the same bits as those of strips (linear_strips.h), which use dot products: with up
// to four columns, putting weights into matrices costs what their products save.
#pragma once

#include "kernels/byte_group.h"
#include "kernels/linear_prompt.h"

#if defined(INGOT_MATMUL)

namespace ingot::INGOT_ISA {

// A stretch of kLanes rows.
struct alignas(64) MatmulStrip {
  int8_t weights[kInputBlock / 8][simd::kLanes][8];
  StripFactors factors;
  float factor[16][2 * simd::kLanes];  // of each group: every row's twice
  float min[16][2 * simd::kLanes];

  template <int offset>
  void put_two(int quad, simd::Fours first, simd::Fours second) {
    simd::store_rows8(weights[quad / 2][0],
                      simd::join_quads(first - simd::splat(offset), second - simd::splat(offset)));
  }
  template <int groups, bool has_min>
  void finish() {
    const auto twice = [](const float* of_rows, float* out) {
      const simd::Floats v = simd::load_floats(of_rows);
      simd::store(out, simd::join_columns(v, v));
    };
    for (int g = 0; g < groups; ++g) {
      twice(factors.factor[g], factor[g]);
      if constexpr (has_min) twice(factors.min[g], min[g]);
    }
  }
};

// The inputs of a group in two columns.
struct TwoGroups {
  ByteGroup first, second;
};

// Adds a group to the totals of kTwos times two columns.
template <ByteShape shape, int kTwos>
inline void add_group(const MatmulStrip& strip, int g, const TwoGroups (&inputs)[kTwos],
                      simd::Floats2x2 (&total)[kTwos]) {
  simd::Ints2x2 sums[kTwos];
  repeat<kTwos>([&](auto two) { sums[two] = simd::zero_ints2x2(); });
  repeat<shape.group / 16>([&](auto i) {
    simd::Columns16 columns[kTwos];
    repeat<kTwos>([&](auto two) {
      columns[two] = simd::load_columns16(inputs[two].first.values + i * 16,
                                          inputs[two].second.values + i * 16);
    });
    repeat<2>([&](auto half) {
      const simd::Rows8 rows =
          simd::load_rows8(strip.weights[g * (shape.group / 8) + i * 2 + half][0]);
      repeat<kTwos>(
          [&](auto two) { sums[two] = simd::add_products<half>(sums[two], rows, columns[two]); });
    });
  });
  const simd::Floats2x2 factor = simd::load_floats2x2(strip.factor[g]);
  repeat<kTwos>([&](auto two) {
    const auto& [first, second] = inputs[two];
    total[two] = simd::add_scaled(total[two], sums[two], factor, first.scale, second.scale);
    if constexpr (shape.has_min)
      total[two] =
          simd::multiply_add(simd::load_floats2x2(strip.min[g]), first.sum, second.sum, total[two]);
  });
}

// What the second bytes of a column add to it.
template <ByteShape shape>
inline simd::Floats sum_seconds(const MatmulStrip& strip, const ByteBlock& input) {
  const SecondBytes* second = input.second;
  simd::Floats2x2 both[1] = {simd::join_columns(simd::zero_floats(), simd::zero_floats())};
  for (uint32_t left = input.seconds; left != 0; left &= left - 1) {
    const ByteGroup group = second_group(*second++);
    add_group<shape, 1>(strip, std::countr_zero(left), {{group, group}}, both);
  }
  return simd::first_column(both[0]);
}

// Adds a stretch of a strip times kWide columns to the results. A column without another is its
// own neighbour.
template <ByteShape shape, int kWide>
INGOT_FLATTEN [[gnu::noinline]] void matmul_tile(const MatmulStrip& strip,
                                                 const ByteBlock* const (&inputs)[kWide],
                                                 int groups, float* results) {
  constexpr int kTwos = (kWide + 1) / 2;
  constexpr auto next = [](int c) { return c + 1 < kWide ? c + 1 : c; };
  const auto result = [&](int c) { return results + c * kPanelRows; };
  simd::Floats2x2 total[kTwos];
  repeat<kTwos>([&](auto two) {
    constexpr int c = two * 2;
    total[two] =
        simd::join_columns(simd::load_floats(result(c)), simd::load_floats(result(next(c))));
  });
  for (int g = 0; g < groups; ++g) {
    TwoGroups here[kTwos];
    repeat<kTwos>([&](auto two) {
      constexpr int c = two * 2;
      here[two] = {group_of<shape>(*inputs[c], g), group_of<shape>(*inputs[next(c)], g)};
    });
    add_group<shape, kTwos>(strip, g, here, total);
  }
  repeat<kTwos>([&](auto two) {
    constexpr int c = two * 2;
    const auto finish = [&](auto column, simd::Floats sum) {
      if constexpr (shape.seconds) sum = simd::add(sum, sum_seconds<shape>(strip, *inputs[column]));
      simd::store(result(column), sum);
    };
    finish(std::integral_constant<int, c>{}, simd::first_column(total[two]));
    if constexpr (c + 1 < kWide)
      finish(std::integral_constant<int, c + 1>{}, simd::second_column(total[two]));
  });
}

}  // namespace ingot::INGOT_ISA

#endif
