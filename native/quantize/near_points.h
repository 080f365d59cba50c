// The points of a grid (formats/grids.h) that are near a place: what the search of a grid encoder
// tries instead of all points.
//
// A place is a run of weights divided by their scale. Each weight is rounded to one of the levels
// that points are made of, and the numbers of the levels are the digits of a key. If the rounded
// place is a point, no other is nearer, whatever the weights count. Else the table has the points
// nearest to it, nearest first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "simd/float_lanes.h"

namespace ingot::INGOT_ISA {

template <int kRun, int kLevelCount>
class NearPoints {
 public:
  using Lanes = simd::FloatLanes<kRun>;
  static constexpr int kMost = 24;  // points that are tried
  static constexpr int kFew = 8;    // while a scale is looked for; both multiples of kAtOnce

  struct Near {
    const uint16_t* first;
    int count;
  };

  template <class Entry, size_t n>
  NearPoints(const Entry (&grid)[n], const float (&levels)[kLevelCount]) : points_(n) {
    static_assert(sizeof(Entry) == kRun);
    std::copy(levels, levels + kLevelCount, levels_);
    for (size_t p = 0; p < n; ++p) {
      int8_t bytes[kRun];
      std::memcpy(bytes, &grid[p], kRun);
      float values[kRun];
      for (int i = 0; i < kRun; ++i) values[i] = bytes[i];
      points_[p] = Lanes::load(values);
    }
    int keys = 1;
    float places[kRun];
    for (int i = 0; i < kRun; ++i, keys *= kLevelCount) places[i] = static_cast<float>(keys);
    place_values_ = Lanes::load(places);
    near_.resize(static_cast<size_t>(keys) * kMost);
    counts_.resize(keys);
    std::vector<std::pair<float, uint16_t>> all(n);
    for (int key = 0; key < keys; ++key) fill(key, all);
  }

  const Lanes& point(int index) const { return points_[index]; }

  // The sum of all lanes.
  static float sum_of(const Lanes& lanes) {
    const Four at = folded(lanes);
    return (at[0] + at[2]) + (at[1] + at[3]);
  }

  struct Best {
    int point;
    float error;  // divided by the scale, but for a constant
  };

  // The point of the nearest ones with the least error, each shifted: that of q is the sum of
  // q * (square * q + linear). Without `near.count` choices it is the first.
  Best best(const Near& near, int tries, float shift, const Lanes& square,
            const Lanes& linear) const {
    Best found{near.first[0], std::numeric_limits<float>::infinity()};
    for (int k = 0; k < std::min(tries, near.count); k += kAtOnce) {
      Four errors[kAtOnce];
      for (int i = 0; i < kAtOnce; ++i) {
        const Lanes q = points_[near.first[k + i]] + shift;
        errors[i] = folded(q * (square * q + linear));
      }
      const Four sums = sums_of(errors);
      for (int i = 0; i < kAtOnce; ++i)
        if (sums[i] < found.error) found = {near.first[k + i], sums[i]};
    }
    return found;
  }

  Near near(const Lanes& place) const {
    Lanes digit = 0.0f;
    for (int k = 1; k < kLevelCount; ++k)
      digit += select(Lanes(0.5f * (levels_[k - 1] + levels_[k])) < place, Lanes(1.0f), 0.0f);
    const int key = static_cast<int>(sum_of(digit * place_values_));
    return {near_.data() + static_cast<size_t>(key) * kMost, counts_[key]};
  }

 private:
  static constexpr int kAtOnce = 4;  // points, so that their sums share shuffles
  typedef float Four __attribute__((vector_size(16)));

  static Four folded(const Lanes& lanes) {
    Four parts[kRun / 4];
    std::memcpy(parts, &lanes, sizeof(parts));
    if constexpr (kRun == 8) return parts[0] + parts[1];
    return parts[0];
  }

  // The sum of each, as sum_of adds.
  static Four sums_of(const Four (&of)[kAtOnce]) {
    const Four first = __builtin_shufflevector(of[0], of[1], 0, 4, 1, 5) +
                       __builtin_shufflevector(of[0], of[1], 2, 6, 3, 7);
    const Four second = __builtin_shufflevector(of[2], of[3], 0, 4, 1, 5) +
                        __builtin_shufflevector(of[2], of[3], 2, 6, 3, 7);
    return __builtin_shufflevector(first, second, 0, 1, 4, 5) +
           __builtin_shufflevector(first, second, 2, 3, 6, 7);
  }

  void fill(int key, std::vector<std::pair<float, uint16_t>>& all) {
    float place[kRun];
    for (int i = 0, rest = key; i < kRun; ++i, rest /= kLevelCount)
      place[i] = levels_[rest % kLevelCount];
    for (size_t p = 0; p < points_.size(); ++p) {
      float distance = 0;
      for (int i = 0; i < kRun; ++i) {
        const float apart = points_[p][i] - place[i];
        distance += apart * apart;
      }
      all[p] = {distance, static_cast<uint16_t>(p)};
    }
    std::partial_sort(all.begin(), all.begin() + kMost, all.end());
    counts_[key] = all[0].first == 0 ? 1 : kMost;
    for (int k = 0; k < kMost; ++k) near_[static_cast<size_t>(key) * kMost + k] = all[k].second;
  }

  float levels_[kLevelCount];
  Lanes place_values_;  // of the digits of a key
  std::vector<Lanes> points_;
  std::vector<uint16_t> near_;  // [keys][kMost]
  std::vector<uint8_t> counts_;
};

}  // namespace ingot::INGOT_ISA
