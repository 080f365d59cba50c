// Byte products in the tile registers of AMX: sixteen columns at once, the same sums as
// byte_tile().
//
// Inputs are the left operand: one group of up to sixteen columns. Weights are the right operand: a
// strip lies in memory as a tile wants it. One instruction makes the sums of a group of all rows
// and columns; they pass through memory to the vector registers, where each meets its factors.
#pragma once

#include <immintrin.h>

#include "kernels/linear_bytes.h"

namespace ingot::INGOT_ISA {

inline constexpr int kTileColumns = 16;

// Tiles 0 to 3 are sums, 4 inputs, 5 weights.
template <ByteShape shape>
inline void configure_byte_tiles(int columns) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, shape.group, 64};
    uint8_t rows[16] = {};
  } config;
  const auto height = static_cast<uint8_t>(columns);
  for (int i = 0; i < 5; ++i) config.rows[i] = height;
  config.rows[5] = shape.group / 4;
  __asm__ volatile("" : : "r"(&config) : "memory");  // gcc 12 drops the stores without
  _tile_loadconfig(&config);
}

// The sums of every group of a strip: sums[group][column][row].
template <ByteShape shape>
inline void multiply_byte_tiles(const ByteStrip& strip, const ByteBlock* inputs,
                                int32_t (*sums)[kTileColumns][simd::kLanes]) {
  // Tiles go by literal numbers: gcc's intrinsics paste them into assembly.
  for (int g = 0; g < kInputBlock / shape.group; g += 4) {
    const auto load_group = [&](int i) {
      _tile_loadd(4, inputs->values + (g + i) * shape.group, sizeof(ByteBlock));
      _tile_loadd(5, strip.weights[(g + i) * shape.group / 4], sizeof(strip.weights[0]));
    };
    _tile_zero(0);
    load_group(0);
    _tile_dpbsud(0, 4, 5);
    _tile_zero(1);
    load_group(1);
    _tile_dpbsud(1, 4, 5);
    _tile_zero(2);
    load_group(2);
    _tile_dpbsud(2, 4, 5);
    _tile_zero(3);
    load_group(3);
    _tile_dpbsud(3, 4, 5);
    _tile_stored(0, sums[g], 64);
    _tile_stored(1, sums[g + 1], 64);
    _tile_stored(2, sums[g + 2], 64);
    _tile_stored(3, sums[g + 3], 64);
  }
}

template <class F>
struct ByteTilePanel : BytePanel<F> {
  static constexpr ByteShape kShape = kByteShape<F>;
  static constexpr bool kInTileRegisters = true;

  // `count` strips times all columns, before which there are `before` others. The last tile may
  // overlap the one before it: those columns are not added again.
  static void multiply(const ByteStrip* strips, int64_t count, const ByteBlock* inputs,
                       int64_t before, int64_t columns, float* results) {
    constexpr int kGroups = kInputBlock / kShape.group;
    alignas(64) int32_t sums[kGroups][kTileColumns][simd::kLanes];
    for (int64_t s = 0; s < count; ++s) {
      for (int64_t done = 0; done < columns; done += kTileColumns) {
        const int64_t first = std::max(-before, std::min(done, columns - kTileColumns));
        multiply_byte_tiles<kShape>(strips[s], inputs + first, sums);
        const int64_t end = std::min(columns, done + kTileColumns);
        add_sums(strips[s].factors, inputs, sums, first, done, end, results + s * simd::kLanes);
      }
    }
  }

 private:
  INGOT_FLATTEN static void add_sums(const StripFactors& factors, const ByteBlock* inputs,
                                     const int32_t (*sums)[kTileColumns][simd::kLanes],
                                     int64_t first, int64_t begin, int64_t end, float* results) {
    for (int64_t c = begin; c < end; ++c) {
      float* result = results + c * kPanelRows;
      simd::Floats total = simd::load_floats(result);
      repeat<kInputBlock / kShape.group>([&](auto g) {
        const simd::Ints sum = simd::load_ints(sums[g][c - first]);
        total = add_group<kShape>(simd::add(sum, start_of_group<kShape>(inputs[c], g)), factors,
                                  inputs[c], g, total);
      });
      simd::store(result, total);
    }
  }
};

// Many columns: panels in tiles.
template <class F>
void tile_bytes(const uint8_t* weight, int64_t row_bytes, const LinearInput& input, int64_t begin,
                int64_t end, float* out, int64_t out_stride, uint8_t* scratch) {
  configure_byte_tiles<kByteShape<F>>(
      static_cast<int>(std::min<int64_t>(input.columns, kTileColumns)));
  prompt_linear<ByteTilePanel<F>>(weight, row_bytes, input, begin, end, out, out_stride, scratch);
  _tile_release();
}

}  // namespace ingot::INGOT_ISA
