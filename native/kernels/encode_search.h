// What the searching encoders share: the weights laid out for a search, the level sets
// they are rounded to, and scales in half precision.
//
// Layout: one lane per group, so that whatever is done to a group is done to all groups
// of a block at once, and a sum over a group is a plain loop:
//
//     memory                          lanes
//     group 0:  a0 a1 a2 ...          weight[0] = a0 b0 c0 ...
//     group 1:  b0 b1 b2 ...          weight[1] = a1 b1 c1 ...
//     group 2:  c0 c1 c2 ...          weight[2] = a2 b2 c2 ...
//
// Weights are counted in a unit, the power of two at or below the largest of the block: no
// bit is lost, and no sum of squares can leave the range of a float.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

#include "kernels/encode_extremes.h"
#include "simd/float_lanes.h"
#include "simd/half.h"

namespace ingot::INGOT_ISA {

// The unit of a block. 0 if all its weights are too small for a half-precision scale
// (whose smallest is 2^-24), NaN if one of them is not finite; such a block is encoded
// without a search, all its weights 0 or NaN.
inline float unit_of(const float* values, int count) {
  const float largest = largest_magnitude(values, count);
  if (!(largest <= std::numeric_limits<float>::max()))
    return std::numeric_limits<float>::quiet_NaN();
  const uint32_t exponent = std::bit_cast<uint32_t>(largest) & 0x7f800000u;
  return largest < 0x1p-26f ? 0.0f : std::bit_cast<float>(exponent);
}

template <int kGroups, int kSize>
struct Weights {
  using Lanes = simd::FloatLanes<kGroups>;

  Lanes weight[kSize];

  // Group g is at groups[g] and counted in unit[g].
  void load(const float* const (&groups)[kGroups], const float (&unit)[kGroups]) {
    float inverse[kGroups];
    for (int g = 0; g < kGroups; ++g) inverse[g] = 1.0f / unit[g];
    for (int i = 0; i < kSize; ++i) {
      float row[kGroups];
      for (int g = 0; g < kGroups; ++g) row[g] = groups[g][i];
      weight[i] = Lanes::load(row) * Lanes::load(inverse);
    }
  }

  // The groups of one block, one after the other.
  void load(const float* values, float unit) {
    const float* groups[kGroups];
    float units[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      groups[g] = values + g * kSize;
      units[g] = unit;
    }
    load(groups, units);
  }
};

// Up to kLanes groups that share nothing, each in its own unit; missing ones are zeros.
// A group without a search is zeros too, and `unsearched` has its unit_of.
template <int kLanes, int kSize>
struct LoneGroups : Weights<kLanes, kSize> {
  float unit[kLanes], unsearched[kLanes];

  LoneGroups(const float* values, int64_t count) {
    static constexpr float kZeros[kSize] = {};
    const float* groups[kLanes];
    for (int g = 0; g < kLanes; ++g) {
      groups[g] = g < count ? values + g * kSize : kZeros;
      unsearched[g] = unit[g] = unit_of(groups[g], kSize);
      if (searched(g)) continue;
      groups[g] = kZeros;
      unit[g] = 1;
    }
    this->load(groups, unit);
  }
  bool searched(int g) const { return unsearched[g] > 0; }
};

// How much the error of each weight counts. Both kinds give a search the counts of a run of blocks,
// laid out as its weights are:
//
//     weighed(value, i)   value times the counts of weight i of every group
//     total()             the sum of a group's counts
//     sum_of(lanes)       the sum of lanes[g] * total()[g]

// All count the same; nothing is multiplied.
struct Even {
  template <int kGroups, int kSize>
  struct Block {
    using Lanes = simd::FloatLanes<kGroups>;
    static constexpr bool kIsEven = true;

    static Lanes weighed(const Lanes& value, int) { return value; }
    static constexpr float total() { return kSize; }
    static constexpr float inverse_total() { return 1.0f / kSize; }
    static constexpr float mean() { return 1; }
    static float sum_of(const Lanes& lanes);
  };

  template <int kGroups, int kSize>
  Block<kGroups, kSize> block(int64_t) const {
    return {};
  }
};

// A half-precision scale: its bits, and its value counted in the block's unit.
struct HalfScale {
  uint16_t bits;
  float value;

  static HalfScale from_bits(uint16_t bits, float unit) {
    return {bits, simd::half_bits_to_float(bits) / unit};
  }

  // The nearest that is finite and, unless `value` is 0, not 0.
  static HalfScale nearest(float value, float unit) {
    const uint16_t bits = simd::float_to_half_bits(value * unit);
    const uint16_t sign = bits & 0x8000u, lowest = value != 0;
    const uint16_t magnitude = std::clamp<uint16_t>(bits & 0x7fffu, lowest, 0x7bffu);
    return from_bits(sign | magnitude, unit);
  }

  // `steps` further from zero, or nearer.
  HalfScale neighbour(int steps, float unit) const {
    const int magnitude = std::clamp((bits & 0x7fff) + steps, 0, 0x7bff);
    return from_bits(static_cast<uint16_t>((bits & 0x8000) | magnitude), unit);
  }

  // The nearest whose magnitude is at least that of `value`, as far as there is one.
  static HalfScale covering(float value, float unit) {
    const HalfScale half = nearest(value, unit);
    const bool covers = value < 0 ? half.value <= value : value <= half.value;
    return covers ? half : half.neighbour(1, unit);
  }
};

template <class Lanes>
inline Lanes inverse_or_zero(const Lanes& scale) {
  return select(scale == 0.0f, Lanes(0.0f), 1.0f / scale);
}

template <int n>
inline float sum(const simd::FloatLanes<n>& lanes) {
  float total = 0;
  for (int g = 0; g < n; ++g) total += lanes[g];
  return total;
}

template <int kGroups, int kSize>
inline float Even::Block<kGroups, kSize>::sum_of(const Lanes& lanes) {
  return sum(lanes) * kSize;
}

// As an importance matrix says: a number for each column of a row.
struct Important {
  const float* importance;
  int64_t columns;

  template <int kGroups, int kSize>
  struct Block : Weights<kGroups, kSize> {
    using Lanes = simd::FloatLanes<kGroups>;
    static constexpr bool kIsEven = false;
    Lanes sums;

    Lanes weighed(const Lanes& value, int i) const { return value * this->weight[i]; }
    Lanes total() const { return sums; }
    Lanes inverse_total() const { return inverse_or_zero(sums); }
    Lanes mean() const { return sums * (1.0f / kSize); }
    float sum_of(const Lanes& lanes) const { return sum(lanes * sums); }
  };

  // The groups from number `first` on; those beyond the row count nothing.
  template <int kGroups, int kSize>
  Block<kGroups, kSize> block(int64_t first) const {
    static constexpr float kZeros[kSize] = {};
    const float* groups[kGroups];
    float unit[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      const int64_t start = (first + g) * kSize;
      groups[g] = start < columns ? importance + start : kZeros;
      unit[g] = 1;
    }
    Block<kGroups, kSize> found;
    found.load(groups, unit);
    found.sums = 0.0f;
    for (int i = 0; i < kSize; ++i) found.sums += found.weight[i];
    return found;
  }
};

// The lane of largest magnitude.
template <int n>
inline float extreme(const simd::FloatLanes<n>& lanes) {
  float found = lanes[0];
  for (int g = 1; g < n; ++g)
    if (std::fabs(found) < std::fabs(lanes[g])) found = lanes[g];
  return found;
}

// Whether all lanes are as near to `middle` as a part of it.
template <int n>
inline bool is_within(const simd::FloatLanes<n>& lanes, float middle, float part) {
  for (int g = 0; g < n; ++g)
    if (std::fabs(lanes[g] - middle) > part * std::fabs(middle)) return false;
  return true;
}

// A level set says which values weights are rounded to, once divided by their scale:
//     nearest(u)   the level nearest to u
//     index(u)     its number, counted from the lowest
//     kStep        about the distance between the outermost levels

// kLowest, kLowest + 1 ... kHighest.
template <int kLowestLevel, int kHighestLevel>
struct EvenLevels {
  static constexpr float kLowest = kLowestLevel, kHighest = kHighestLevel, kStep = 1;

  template <class Lanes>
  static Lanes nearest(const Lanes& u) {
    return round(clamp(u, kLowest, kHighest));
  }
  template <class Lanes>
  static Lanes index(const Lanes& u) {
    return nearest(u) - kLowest;
  }
};

// The values of a table, in rising order.
template <const auto& kTable>
struct TableLevels {
  static constexpr int kCount = static_cast<int>(std::size(kTable));
  static constexpr float kLowest = kTable[0], kHighest = kTable[kCount - 1];
  static constexpr float kStep = kTable[1] - kTable[0];

  template <class Lanes>
  static Lanes nearest(const Lanes& u) {
    return climb(u, [](int k) { return static_cast<float>(kTable[k]); });
  }
  template <class Lanes>
  static Lanes index(const Lanes& u) {
    return climb(u, [](int k) { return static_cast<float>(k); });
  }

 private:
  // Past every midpoint between two levels the upper one takes over.
  template <class Lanes, class Level>
  static Lanes climb(const Lanes& u, Level level) {
    Lanes reached = level(0);
#pragma GCC unroll 16
    for (int k = 1; k < kCount; ++k) {
      const float midpoint = 0.5f * static_cast<float>(kTable[k - 1] + kTable[k]);
      reached = select(Lanes(midpoint) < u, Lanes(level(k)), reached);
    }
    return reached;
  }
};

}  // namespace ingot::INGOT_ISA
