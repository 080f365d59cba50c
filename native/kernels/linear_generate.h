// Matrix products for generation: straight from the packed weights, lanes along a row.
//
// One column: four rows at a time, unpacked, multiplied and summed in registers
// (this file). A few columns: rows are unpacked once for all of them (linear_few.h). Both
// make a result by the same operations in the same order, so it depends neither on the
// number of columns nor on the range of rows.
#pragma once

#include "isa/table.h"
#include "kernels/linear_few.h"

namespace ingot::INGOT_ISA {

// A 256-weight block of each row, all of it one run: integers to the end.
template <class F, int kRows>
inline void add_block(const uint8_t* const (&blocks)[kRows], const Stretch<F> (&stretch)[kRows],
                      const InputBlock& input, simd::Floats (&total)[kRows]) {
  simd::Ints sums[kRows];
  repeat<kRows>([&](auto r) { sums[r] = simd::zero_ints(); });
  for_each_slice<F>([&](auto slice) {
    const simd::Words values = simd::load_words(input.values + slice * 32);
    repeat<kRows>([&](auto r) {
      sums[r] = dot_words(sums[r], read_words<F, slice>(blocks[r], stretch[r]), values);
    });
  });
  repeat<kRows>([&](auto r) {
    const float factor = stretch[r].factor[0] * input.scale;
    total[r] = simd::multiply_add(simd::to_floats(sums[r]), simd::splat_float(factor), total[r]);
  });
}

// Small blocks, two runs at a time.
template <class F, int kRows>
inline void add_small_blocks(const uint8_t* const (&blocks)[kRows],
                             const Stretch<F> (&stretch)[kRows], const InputBlock& input, int count,
                             simd::Floats (&total)[kRows]) {
  simd::Floats part[kRows];
  repeat<kRows>([&](auto r) { part[r] = simd::zero_floats(); });
  const auto add_two_runs = [&](auto two) {
    simd::HalfSums sums[kRows];
    repeat<kRows>([&](auto r) { sums[r] = simd::zero_half_sums(); });
    simd::Words values[kRun<F> / 16];
    repeat<kRun<F> / 16>([&](auto i) { values[i] = two_runs_of_input<kRun<F>>(input, two, i); });
    repeat<kRows>([&](auto r) {
      simd::Words words[kRun<F> / 16];
      read_two_runs<F>(blocks[r], count, two, words);
      repeat<kRun<F> / 16>(
          [&](auto i) { sums[r] = simd::dot_halves(sums[r], words[i], values[i]); });
    });
    repeat<kRows>([&](auto r) {
      part[r] =
          simd::add_scaled(part[r], sums[r], simd::load_half_factors(stretch[r].factor + two * 2));
    });
  };
  if (count == kBlocksPerStretch<F>) {
    repeat<kRuns<F> / 2>(add_two_runs);
  } else {
    for (int two = 0; two < runs_in<F>(count); ++two) add_two_runs(two);
  }
  repeat<kRows>([&](auto r) {
    total[r] = simd::multiply_add(part[r], simd::splat_float(input.scale), total[r]);
  });
}

template <class F, int kRows>
INGOT_FLATTEN void generate_one(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                                float* out) {
  constexpr int kStretchBytes = kBlocksPerStretch<F> * F::kBytes;
  const uint8_t* blocks[kRows];
  const InputBlock* from = reinterpret_cast<const InputBlock*>(input.quantized);
  simd::Floats total[kRows];
  repeat<kRows>([&](auto r) {
    blocks[r] = weight + r * row_bytes;
    total[r] = simd::zero_floats();
  });
  for (int64_t left = input.width / F::kWeights; left > 0; left -= kBlocksPerStretch<F>) {
    const int count = left < kBlocksPerStretch<F> ? static_cast<int>(left) : kBlocksPerStretch<F>;
    Stretch<F> stretch[kRows];
    repeat<kRows>([&](auto r) {
      prefetch_stretch<F>(blocks[r] + kRows * row_bytes);
      read_stretch<F>(blocks[r], count, stretch[r]);
    });
    if constexpr (kRuns<F> == 1) {
      add_block<F>(blocks, stretch, *from, total);
    } else {
      add_small_blocks<F>(blocks, stretch, *from, count, total);
    }
    if constexpr (F::kHasMin) {
      repeat<kRows>([&](auto r) {
        repeat<Stretch<F>::kMinVectors>([&](auto v) {
          total[r] = simd::multiply_add(
              stretch[r].min[v], simd::load_floats(sums_for_mins<F>(*from) + v * simd::kLanes),
              total[r]);
        });
      });
    }
    repeat<kRows>([&](auto r) { blocks[r] += kStretchBytes; });
    from = next_stretch(from, input);
  }
  repeat<kRows>([&](auto r) { out[r] = simd::sum(total[r]); });
}

template <class F>
void generate_linear(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                     int64_t begin, int64_t end, float* out, int64_t out_stride, uint8_t*) {
  constexpr int kRows = 4;
  if (input.columns == 1)
    for (; end - begin >= kRows; begin += kRows)
      generate_one<F, kRows>(weight + begin * row_bytes, row_bytes, input, out + begin);
  generate_few<F>(weight, row_bytes, input, begin, end, out, out_stride);
}

}  // namespace ingot::INGOT_ISA
