// The search for formats with a scale and no minimum: w = (d * scale[g]) * level.
//
// Minimises the squared error of the block, each weight's as much as it counts:
//
// 1. fit_scale: each group alone, its scale any float. A start stretches the group so
//    that its extreme weight meets (or overshoots, or falls short of) the lowest or the
//    highest level; the weights are rounded; for the levels so found the best scale is
//    sum(w * level) / sum(level^2). The best start is rounded once more with its scale.
// 2. The extreme scale decides d; every group tries the integers around its scale,
//    each time rounding its weights anew.
// 3. For the levels and integers found, the best d is again a quotient of two sums; step
//    2 is repeated around it, and kept if the block's error is smaller.
// 4. If weights count differently and all groups want nearly the same scale, steps 2 and 3 are
//    tried with one scale for all.
#pragma once

#include "kernels/encode_search.h"

namespace ingot::INGOT_ISA {

// How far beyond the outermost level the extreme weight starts, in steps. Ten of them gain
// under 0.1% on gaussian weights, three lose half a percent.
inline constexpr float kOvershoots[] = {0.0f, 0.25f, -0.25f, 0.5f, -0.5f, -0.75f, -1.0f};

// Further ones, if the extreme weight may count little.
inline constexpr float kFarOvershoots[] = {1.0f, 1.5f, 2.0f, 3.0f, 4.0f};

// A later start must be better than the best by this part, so that groups which several
// starts fit equally well agree on their scale.
inline constexpr float kNoticeable = 1.0f + 1e-6f;

template <class Lanes>
struct LevelSums {
  Lanes weight_level, level_level;  // sums over a group of w * level and level^2
};

template <class Levels, int kSize, class Lanes, class Counts>
inline LevelSums<Lanes> level_sums(const Lanes* weight, const Counts& counts,
                                   const Lanes& inverse_scale) {
  LevelSums<Lanes> sums{0.0f, 0.0f};
  for (int i = 0; i < kSize; ++i) {
    const Lanes level = Levels::nearest(weight[i] * inverse_scale);
    sums.weight_level += counts.weighed(weight[i] * level, i);
    sums.level_level += counts.weighed(level * level, i);
  }
  return sums;
}

template <class Levels, int kSize, class Lanes, class Counts>
inline Lanes squared_error(const Lanes* weight, const Counts& counts, const Lanes& scale) {
  const Lanes inverse = inverse_or_zero(scale);
  Lanes error = 0.0f;
  for (int i = 0; i < kSize; ++i) {
    const Lanes rest = weight[i] - scale * Levels::nearest(weight[i] * inverse);
    error += counts.weighed(rest * rest, i);
  }
  return error;
}

// The best scale of each group (step 1).
template <class Levels, int kSize, class Lanes, class Counts>
inline Lanes fit_scale(const Lanes* weight, const Counts& counts) {
  Lanes low = weight[0], high = weight[0];
  for (int i = 1; i < kSize; ++i) {
    low = min(low, weight[i]);
    high = max(high, weight[i]);
  }
  const Lanes inverse_extreme = inverse_or_zero(select(0.0f - low < high, high, low));

  Lanes best_scale = 0.0f, best_gain = 0.0f;
  const auto attempt = [&](const Lanes& inverse_scale) {
    const auto sums = level_sums<Levels, kSize>(weight, counts, inverse_scale);
    const Lanes scale = sums.weight_level * inverse_or_zero(sums.level_level);
    const Lanes gain = scale * sums.weight_level;  // what the error is smaller than sum(w^2)
    const auto better = best_gain * kNoticeable < gain;
    best_scale = select(better, scale, best_scale);
    best_gain = select(better, gain, best_gain);
  };
  for (const float overshoot : kOvershoots) {
    attempt(inverse_extreme * (Levels::kLowest - overshoot * Levels::kStep));
    attempt(inverse_extreme * (Levels::kHighest + overshoot * Levels::kStep));
  }
  if constexpr (!Counts::kIsEven) {
    for (const float overshoot : kFarOvershoots) {
      attempt(inverse_extreme * (Levels::kLowest - overshoot * Levels::kStep));
      attempt(inverse_extreme * (Levels::kHighest + overshoot * Levels::kStep));
    }
  }
  attempt(inverse_or_zero(best_scale));
  return best_scale;
}

// The level numbers of all weights, group after group.
template <class Levels, int kGroups, int kSize, class Lanes>
inline void store_indices(const Lanes* weight, const Lanes& scale, uint8_t* index) {
  const Lanes inverse = inverse_or_zero(scale);
  for (int i = 0; i < kSize; ++i) {
    float row[kGroups];
    Levels::index(weight[i] * inverse).store(row);
    for (int g = 0; g < kGroups; ++g) index[g * kSize + i] = static_cast<uint8_t>(row[g]);
  }
}

// For each group the best of a few scales: trial(k) for k = 0 .. kTrials - 1.
template <class Levels, int kSize, int kTrials, class Lanes, class Counts, class Trial>
inline Lanes best_trial(const Lanes* weight, const Counts& counts, Trial trial) {
  Lanes best = trial(0), error = squared_error<Levels, kSize>(weight, counts, best);
  for (int k = 1; k < kTrials; ++k) {
    const Lanes other = trial(k);
    const Lanes other_error = squared_error<Levels, kSize>(weight, counts, other);
    best = select(other_error < error, other, best);
    error = min(other_error, error);
  }
  return best;
}

// Blocks of kSize weights under one half-precision scale: no groups, so each block is one. Of the
// scales, the nearest to the one that fits best and the two beside it are tried: for tiny
// weights the steps between half-precision numbers are large. If weights count differently, so are
// those that take the lowest level to the highest or back: for weights that are nearly equal, both
// fit, and one of them is nearer to a half-precision number. pack(d, levels, block) writes one.
template <class Levels, int kSize, int kBlockBytes, class Counts, class Pack>
inline void encode_lone_scales(const float* values, const Counts& counts, uint8_t* block,
                               int64_t count, Pack pack) {
  constexpr int kLanes = 16;
  constexpr float kTurned = Levels::kLowest / Levels::kHighest;
  using Lanes = simd::FloatLanes<kLanes>;
  for (int64_t b = 0; b < count; b += kLanes, values += kLanes * kSize) {
    const LoneGroups<kLanes, kSize> blocks(values, count - b);
    const auto counted = counts.template block<kLanes, kSize>(b);
    constexpr int kTrials = decltype(counted)::kIsEven ? 3 : 5;
    const Lanes wanted = fit_scale<Levels, kSize>(blocks.weight, counted);
    const Lanes scale =
        best_trial<Levels, kSize, kTrials, Lanes>(blocks.weight, counted, [&](int trial) {
          const float turned = trial == 3 ? kTurned : trial == 4 ? 1 / kTurned : 1.0f;
          const int steps = trial < 3 ? trial - 1 : 0;
          float scales[kLanes];
          for (int g = 0; g < kLanes; ++g) {
            const HalfScale nearest = HalfScale::nearest(wanted[g] * turned, blocks.unit[g]);
            scales[g] = nearest.neighbour(steps, blocks.unit[g]).value;
          }
          return Lanes::load(scales);
        });
    uint8_t index[kLanes * kSize];
    store_indices<Levels, kLanes, kSize>(blocks.weight, scale, index);
    for (int g = 0; g < kLanes && b + g < count; ++g, block += kBlockBytes) {
      const float d = blocks.searched(g) ? scale[g] * blocks.unit[g] : blocks.unsearched[g];
      pack(simd::float_to_half_bits(d), index + kSize * g, block);
    }
  }
}

template <int kGroups, int kSize>
struct ScaledBlock {
  uint16_t d;                      // half precision
  int scale[kGroups];              // within kLowestScale .. -kLowestScale - 1
  uint8_t index[kGroups * kSize];  // of the level of each weight
};

// Step 2: moves every group to the best of its scale and the two beside it; returns the
// error.
template <class Levels, int kLowestScale, int kSize, class Lanes, class Counts>
inline float settle(const Lanes* weight, const Counts& counts, const HalfScale& d, Lanes& scale) {
  const Lanes middle = scale;
  Lanes error = squared_error<Levels, kSize>(weight, counts, middle * d.value);
  for (const float step : {-1.0f, 1.0f}) {
    const Lanes trial = clamp(middle + step, kLowestScale, -kLowestScale - 1);
    const Lanes trial_error = squared_error<Levels, kSize>(weight, counts, trial * d.value);
    scale = select(trial_error < error, trial, scale);
    error = min(trial_error, error);
  }
  return sum(error);
}

// Step 3: the d that fits the levels best.
template <class Levels, int kSize, class Lanes, class Counts>
inline HalfScale refit(const Lanes* weight, const Counts& counts, const HalfScale& d,
                       const Lanes& scale, float unit) {
  const auto sums = level_sums<Levels, kSize>(weight, counts, inverse_or_zero(scale * d.value));
  const float squares = sum(scale * scale * sums.level_level);
  return squares > 0 ? HalfScale::nearest(sum(scale * sums.weight_level) / squares, unit) : d;
}

// Steps 1 to 4.
template <class Levels, int kLowestScale, int kGroups, int kSize, class Counts>
inline ScaledBlock<kGroups, kSize> search_scaled_block(const float* values, const Counts& counts) {
  using Lanes = simd::FloatLanes<kGroups>;
  ScaledBlock<kGroups, kSize> block{};
  const float unit = unit_of(values, kGroups * kSize);
  block.d = simd::float_to_half_bits(unit);
  if (!(unit > 0)) return block;

  Weights<kGroups, kSize> weights;
  weights.load(values, unit);
  const Lanes* weight = weights.weight;
  const Lanes wanted = fit_scale<Levels, kSize>(weight, counts);
  HalfScale d = HalfScale::covering(extreme(wanted) / kLowestScale, unit);
  Lanes scale;
  float error;
  bool is_first = true;  // its error may be infinite
  const auto attempt = [&](HalfScale trial_d) {
    const Lanes inverse = inverse_or_zero(Lanes(trial_d.value));
    Lanes trial = round(clamp(wanted * inverse, kLowestScale, -kLowestScale - 1));
    for (int round = 0; round < 2; ++round) {
      const float found = settle<Levels, kLowestScale, kSize>(weight, counts, trial_d, trial);
      if (is_first || found < error) error = found, d = trial_d, scale = trial, is_first = false;
      if (round == 0) trial_d = refit<Levels, kSize>(weight, counts, trial_d, trial, unit);
    }
  };
  attempt(d);
  if constexpr (!Counts::kIsEven) {
    // One scale for all groups, if they want nearly the same.
    const float mean = counts.sum_of(wanted) / counts.sum_of(Lanes(1.0f));
    if (is_within(wanted, mean, -1.0f / kLowestScale))
      attempt(HalfScale::nearest(mean / kLowestScale, unit));
  }

  block.d = d.bits;
  for (int g = 0; g < kGroups; ++g) block.scale[g] = static_cast<int>(scale[g]);
  store_indices<Levels, kGroups, kSize>(weight, scale * d.value, block.index);
  return block;
}

}  // namespace ingot::INGOT_ISA
