// The search of the formats whose runs of weights are points of a grid:
// w = (d * (2 * scale[g] + 1)) * q, where q is a point with signs or a shift.
//
// What a format adds is a Group: the weights of a group, and fit(scale), which finds the best
// point for each run under a scale. Around it the steps are those of encode_search_scale.h:
//
// 1. Each group alone, its scale any float: several starts, each fitted, the best refined.
// 2. The largest scale decides d; every group tries the two odd numbers around its scale.
// 3. For the points found, the best d is a quotient of two sums; step 2 is repeated with it.
// 4. The scales are known; more points are tried for each run.
#pragma once

#include "kernels/encode_search.h"

namespace ingot::INGOT_ISA {

inline constexpr int kGridWeights = 256;  // of a block

// What fit() found for a group: the error under any scale s is, but for a constant,
// s * s * squares - 2 * s * products.
struct GridSums {
  float products = 0, squares = 0;  // of weights and q, of q and q; as much as they count

  float scale() const { return squares > 0 ? products / squares : 0; }
  float gain() const { return products > 0 ? products * scale() : 0; }
  float error(float scale) const { return scale * (scale * squares - 2 * products); }
};

template <class Group>
struct GridBlock {
  static constexpr int kGroups = kGridWeights / Group::kWeights;
  uint16_t d = 0;  // half precision
  uint8_t scale[kGroups] = {};
  typename Group::Choice choice[kGroups] = {};
};

// Step 1.
template <class Group>
inline float fit_grid_scale(const Group& group) {
  typename Group::Choice choice;
  float best = 0, gain = 0;
  const auto attempt = [&](float scale) {
    const GridSums sums = group.fit(scale, Group::kFewTries, choice);
    if (gain < sums.gain()) gain = sums.gain(), best = sums.scale();
  };
  const float start = group.largest() / Group::kTop;
  if (!(start > 0)) return 0;
  for (const float stretch : Group::kStretches) attempt(start * stretch);
  attempt(best);
  return best;
}

// Step 2: the error of all groups under d.
template <class Group>
inline float settle_grid(const Group* groups, const float* wanted, float d, GridBlock<Group>& block,
                         float& products, float& squares) {
  constexpr int kMost = Group::kMaxScale / 2;
  float total = 0;
  products = squares = 0;
  for (int g = 0; g < block.kGroups; ++g) {
    const float exact = d > 0 ? (wanted[g] / d - 1) * 0.5f : 0;
    const int lower = std::min(static_cast<int>(std::clamp<float>(exact, 0, kMost)), kMost - 1);
    float least = std::numeric_limits<float>::infinity();
    GridSums kept;
    for (int k = lower; k <= lower + 1; ++k) {
      typename Group::Choice choice;
      const float scale = d * static_cast<float>(2 * k + 1);
      const GridSums sums = groups[g].fit(scale, Group::kFewTries, choice);
      const float error = sums.error(scale);
      if (!(error < least)) continue;
      least = error, kept = sums;
      block.scale[g] = static_cast<uint8_t>(k);
      block.choice[g] = choice;
    }
    total += least;
    const float multiple = 2 * block.scale[g] + 1;
    products += multiple * kept.products;
    squares += multiple * multiple * kept.squares;
  }
  return total;
}

// Steps 1 to 4. `counts` has a number for each weight.
template <class Group>
inline GridBlock<Group> search_grid_block(const float* values, const float* counts) {
  constexpr int kGroups = GridBlock<Group>::kGroups;
  GridBlock<Group> best;
  const float unit = unit_of(values, kGridWeights);
  best.d = simd::float_to_half_bits(unit);
  if (!(unit > 0)) return best;

  Group groups[kGroups];
  float wanted[kGroups], largest = 0;
  for (int g = 0; g < kGroups; ++g) {
    groups[g].load(values + g * Group::kWeights, counts + g * Group::kWeights, 1 / unit);
    wanted[g] = fit_grid_scale(groups[g]);
    largest = std::max(largest, wanted[g]);
  }
  HalfScale d = HalfScale::covering(largest / (Group::kMaxScale * Group::kFactor), unit);
  float least = std::numeric_limits<float>::infinity();
  for (int round = 0; round < 2; ++round) {
    GridBlock<Group> found;
    found.d = d.bits;
    float products, squares;
    const float error =
        settle_grid(groups, wanted, d.value * Group::kFactor, found, products, squares);
    if (!(error < least)) break;
    least = error;
    best = found;
    if (!(products > 0)) break;
    d = HalfScale::nearest(products / squares / Group::kFactor, unit);
  }
  const float step = simd::half_bits_to_float(best.d) / unit * Group::kFactor;
  for (int g = 0; g < kGroups; ++g)
    groups[g].fit(step * static_cast<float>(2 * best.scale[g] + 1), Group::kTries, best.choice[g]);
  return best;
}

}  // namespace ingot::INGOT_ISA
