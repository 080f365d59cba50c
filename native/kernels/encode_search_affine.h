// The search for formats with a scale and a minimum:
//
//     w = (d * scale[g]) * level + offset[g]      offset[g] = -(dmin * min[g])
//
// with levels 0 .. kMaxLevel. Minimises the squared error of the block, each weight's as much as it
// counts:
//
// 1. fit_affine: each group alone, scale and offset any float. From each of a few starting
//    points the weights are rounded; for the levels so found scale and offset are the
//    least-squares line through (level, w). The best is rounded once more with its line.
//    One kind of start puts zero exactly on a level and spreads the group over all levels
//    or a few less (sparse weights, and weights that are on a grid already); the
//    other leaves out a part of the group's range at the bottom and at the top.
// 2. The largest scale and offset decide d and dmin; every group tries the integers
//    around its scale and its minimum, nine pairs, each time rounding its weights anew.
// 3. For the levels and integers found, the best d and dmin solve two linear equations;
//    step 2 is repeated around them, and kept if the block's error is smaller.
// 4. If weights count differently and all groups want nearly the same offset, steps 1 to 3 are
//    tried with one offset for all.
//
// All offsets of a block have one sign. It is negative (dmin > 0) unless every weight of
// the block is positive: then dmin < 0, and the levels start at the weights, not at zero.
#pragma once

#include "kernels/encode_search.h"

namespace ingot::INGOT_ISA {

// What the starts of the second kind leave out at either end, in distances between levels;
// all nine pairs are tried. Sixteen pairs gain 0.1% on gaussian weights.
inline constexpr float kCuts[] = {-0.2f, 0.3f, 0.8f};

// Further ones, if the extreme weights may count little.
inline constexpr float kFarCuts[] = {0.0f, 1.5f, 3.0f};

// A later start must be better than the best by this much (in squared distances between
// levels), so that groups which several starts fit equally well agree on their scale.
inline constexpr float kWorthwhile = 1e-3f;
inline constexpr float kRounding = 2e-6f;

template <class Lanes>
struct Line {
  Lanes scale, offset;
};

template <class Lanes>
struct LineSums {
  Lanes level, level_level, weight_level;  // sums over a group
};

template <int kMaxLevel, int kSize, class Lanes, class Counts>
inline LineSums<Lanes> line_sums(const Lanes* weight, const Counts& counts, const Lanes& slope,
                                 const Lanes& shift) {
  LineSums<Lanes> sums{0.0f, 0.0f, 0.0f};
  for (int i = 0; i < kSize; ++i) {
    const Lanes level = EvenLevels<0, kMaxLevel>::nearest(weight[i] * slope + shift);
    sums.level += counts.weighed(level, i);
    sums.level_level += counts.weighed(level * level, i);
    sums.weight_level += counts.weighed(weight[i] * level, i);
  }
  return sums;
}

template <int kMaxLevel, int kSize, class Lanes, class Counts>
inline Lanes squared_error(const Lanes* weight, const Counts& counts, const Line<Lanes>& line) {
  const Lanes inverse = inverse_or_zero(line.scale);
  Lanes error = 0.0f;
  for (int i = 0; i < kSize; ++i) {
    const Lanes above = weight[i] - line.offset;
    const Lanes rest = above - line.scale * EvenLevels<0, kMaxLevel>::nearest(above * inverse);
    error += counts.weighed(rest * rest, i);
  }
  return error;
}

// The best line of each group (step 1), its offset within the bounds.
template <int kMaxLevel, int kSize, class Lanes, class Counts>
inline Line<Lanes> fit_affine(const Lanes* weight, const Counts& counts, const Lanes& least,
                              const Lanes& most) {
  Lanes low = weight[0], high = weight[0];
  for (int i = 1; i < kSize; ++i) {
    low = min(low, weight[i]);
    high = max(high, weight[i]);
  }
  // From here on the range is 0 .. kMaxLevel: sums are of the size of what they measure.
  low = clamp(low, least, most);
  const Lanes unit = (max(high, low) - low) * (1.0f / kMaxLevel);
  const Lanes inverse_unit = inverse_or_zero(unit);
  Lanes stretched[kSize], total = 0.0f, squares = 0.0f;
  for (int i = 0; i < kSize; ++i) {
    stretched[i] = (weight[i] - low) * inverse_unit;
    total += counts.weighed(stretched[i], i);
    squares += counts.weighed(stretched[i] * stretched[i], i);
  }
  const Lanes lowest = (least - low) * inverse_unit, highest = (most - low) * inverse_unit;

  const auto n = counts.total(), inverse_n = counts.inverse_total();
  // With counts, more than the rounding of the sums.
  Lanes worthwhile = kWorthwhile * counts.mean();
  if constexpr (!Counts::kIsEven) worthwhile = max(worthwhile, squares * kRounding);
  Line<Lanes> best{0.0f, 0.0f};
  Lanes best_error = squares;
  const auto attempt = [&](const Lanes& slope, const Lanes& shift) {
    const auto s = line_sums<kMaxLevel, kSize>(stretched, counts, slope, shift);
    const Lanes determinant = n * s.level_level - s.level * s.level;
    const Lanes free_scale = (n * s.weight_level - total * s.level) * inverse_or_zero(determinant);
    const Lanes free_offset = (total - free_scale * s.level) * inverse_n;
    const Lanes offset = clamp(free_offset, lowest, highest);
    const Lanes bound_scale = (s.weight_level - offset * s.level) * inverse_or_zero(s.level_level);
    const Lanes scale = max(select(offset == free_offset, free_scale, bound_scale), 0.0f);
    const Lanes error = squares + scale * (scale * s.level_level - 2.0f * s.weight_level) +
                        offset * (n * offset - 2.0f * total + 2.0f * scale * s.level);
    const auto better = error < best_error - worthwhile;
    best.scale = select(better, scale, best.scale);
    best.offset = select(better, offset, best.offset);
    best_error = select(better, error, best_error);
  };
  for (int span = kMaxLevel; span > std::max(1, kMaxLevel - 4); --span) {
    const float levels = static_cast<float>(span), slope = levels / kMaxLevel;
    const Lanes zero = clamp((0.0f - low) * inverse_unit * slope, 0.0f, levels);
    attempt(slope, round(zero) - zero);
  }
  for (const float bottom : kCuts) {
    for (const float top : kCuts) {
      const float slope = kMaxLevel / (kMaxLevel - bottom - top);
      attempt(slope, -bottom * slope);
    }
  }
  if constexpr (!Counts::kIsEven) {
    // Weights that are on a grid already which begins with the lowest of them.
    for (int span = kMaxLevel; span > std::max(1, kMaxLevel - 4); --span)
      attempt(static_cast<float>(span) / kMaxLevel, 0.0f);
    for (const float bottom : kFarCuts) {
      for (const float top : kFarCuts) {
        if (bottom + top >= kMaxLevel - 1 || bottom + top == 0) continue;
        const float slope = kMaxLevel / (kMaxLevel - bottom - top);
        attempt(slope, -bottom * slope);
      }
    }
  }
  const Lanes slope = inverse_or_zero(best.scale);
  attempt(slope, 0.0f - best.offset * slope);
  return {best.scale * unit, low + best.offset * unit};
}

template <int kGroups, int kSize>
struct AffineBlock {
  uint16_t d, dmin;                      // half precision
  uint8_t scale[kGroups], min[kGroups];  // 0 .. kMaxScale
  uint8_t level[kGroups * kSize];        // 0 .. kMaxLevel
};

// Scales in the making: the line of group g is d * scale[g], sign * dmin * min[g].
template <class Lanes>
struct AffineScales {
  HalfScale d, dmin;
  Lanes scale, min;

  Line<Lanes> line(float sign) const { return {scale * d.value, min * (sign * dmin.value)}; }
};

// Step 2: moves every group to the best of the nine pairs around it; returns the error.
template <int kMaxLevel, int kMaxScale, int kSize, class Lanes, class Counts>
inline float settle(const Lanes* weight, const Counts& counts, float sign,
                    AffineScales<Lanes>& scales) {
  AffineScales<Lanes> trial = scales;
  const Lanes middle_scale = scales.scale, middle_min = scales.min;
  Lanes error = squared_error<kMaxLevel, kSize>(weight, counts, scales.line(sign));
  for (const float scale_step : {-1.0f, 0.0f, 1.0f}) {
    for (const float min_step : {-1.0f, 0.0f, 1.0f}) {
      if (scale_step == 0 && min_step == 0) continue;
      trial.scale = clamp(middle_scale + scale_step, 0.0f, kMaxScale);
      trial.min = clamp(middle_min + min_step, 0.0f, kMaxScale);
      const Lanes trial_error = squared_error<kMaxLevel, kSize>(weight, counts, trial.line(sign));
      scales.scale = select(trial_error < error, trial.scale, scales.scale);
      scales.min = select(trial_error < error, trial.min, scales.min);
      error = min(trial_error, error);
    }
  }
  return sum(error);
}

// Step 3: the d and dmin that fit the levels best; where the equations leave one or both
// open (all minimums 0, one level in each group) what was there stays.
template <int kMaxLevel, int kSize, class Lanes, class Counts>
inline void refit(const Lanes* weight, const Counts& counts, float sign, float unit,
                  AffineScales<Lanes>& scales) {
  const Line<Lanes> line = scales.line(sign);
  const Lanes slope = inverse_or_zero(line.scale);
  const auto s = line_sums<kMaxLevel, kSize>(weight, counts, slope, 0.0f - line.offset * slope);
  Lanes total = 0.0f;
  for (int i = 0; i < kSize; ++i) total += counts.weighed(weight[i], i);
  const float scale_scale = sum(scales.scale * scales.scale * s.level_level);
  const float scale_min = sum(scales.scale * scales.min * s.level) * sign;
  const float min_min = counts.sum_of(scales.min * scales.min);
  const float weight_scale = sum(scales.scale * s.weight_level);
  const float weight_min = sum(scales.min * total) * sign;
  const float determinant = scale_scale * min_min - scale_min * scale_min;
  float d = scales.d.value, dmin = scales.dmin.value;
  if (min_min == 0 && scale_scale > 0) {
    d = weight_scale / scale_scale;
  } else if (scale_scale == 0 && min_min > 0) {
    dmin = weight_min / min_min;
  } else if (determinant > 1e-6f * scale_scale * min_min) {
    d = (weight_scale * min_min - weight_min * scale_min) / determinant;
    dmin = (weight_min * scale_scale - weight_scale * scale_min) / determinant;
  }
  scales.d = HalfScale::nearest(d, unit);
  scales.dmin = HalfScale::nearest(dmin, unit);
}

// Steps 1 to 4.
template <int kMaxLevel, int kMaxScale, int kGroups, int kSize, class Counts>
inline AffineBlock<kGroups, kSize> search_affine_block(const float* values, const Counts& counts) {
  using Lanes = simd::FloatLanes<kGroups>;
  AffineBlock<kGroups, kSize> block{};
  const float unit = unit_of(values, kGroups * kSize);
  block.d = simd::float_to_half_bits(unit);
  if (!(unit > 0)) return block;

  Weights<kGroups, kSize> weights;
  weights.load(values, unit);
  const Lanes* weight = weights.weight;
  const bool all_positive =
      std::all_of(values, values + kGroups * kSize, [](float value) { return value > 0; });
  const float sign = all_positive ? 1.0f : -1.0f;
  const Line<Lanes> wanted = fit_affine<kMaxLevel, kSize>(
      weight, counts, Lanes(all_positive ? 0.0f : -2.0f), Lanes(all_positive ? 2.0f : 0.0f));

  const auto whole = [](const Lanes& value, float scale) {
    return round(clamp(value * inverse_or_zero(Lanes(scale)), 0.0f, kMaxScale));
  };
  AffineScales<Lanes> scales;
  float error;
  bool is_first = true;  // its error may be infinite
  const auto attempt = [&](const Line<Lanes>& line, const HalfScale& dmin) {
    AffineScales<Lanes> trial;
    trial.d = HalfScale::covering(extreme(line.scale) / kMaxScale, unit);
    trial.dmin = dmin;
    trial.scale = whole(line.scale, trial.d.value);
    trial.min = whole(line.offset, sign * dmin.value);
    for (int round = 0; round < 2; ++round) {
      const float found = settle<kMaxLevel, kMaxScale, kSize>(weight, counts, sign, trial);
      if (is_first || found < error) error = found, scales = trial, is_first = false;
      if (round == 0) refit<kMaxLevel, kSize>(weight, counts, sign, unit, trial);
    }
  };
  attempt(wanted, HalfScale::covering(sign * extreme(wanted.offset) / kMaxScale, unit));
  if constexpr (!Counts::kIsEven) {
    // One offset for all groups, if they want nearly the same.
    const float mean = counts.sum_of(wanted.offset) / counts.sum_of(Lanes(1.0f));
    if (is_within(wanted.offset, mean, 1.0f / kMaxScale)) {
      const HalfScale dmin = HalfScale::nearest(sign * mean / kMaxScale, unit);
      const Lanes offset = sign * dmin.value * kMaxScale;
      attempt(fit_affine<kMaxLevel, kSize>(weight, counts, offset, offset), dmin);
    }
  }

  const Line<Lanes> line = scales.line(sign);
  const Lanes inverse = inverse_or_zero(line.scale);
  for (int i = 0; i < kSize; ++i) {
    float row[kGroups];
    EvenLevels<0, kMaxLevel>::nearest((weight[i] - line.offset) * inverse).store(row);
    for (int g = 0; g < kGroups; ++g) block.level[g * kSize + i] = static_cast<uint8_t>(row[g]);
  }
  for (int g = 0; g < kGroups; ++g) {
    block.scale[g] = static_cast<uint8_t>(scales.scale[g]);
    block.min[g] = static_cast<uint8_t>(scales.min[g]);
  }
  block.d = scales.d.bits;
  // The format subtracts dmin * min.
  block.dmin = all_positive ? scales.dmin.bits ^ 0x8000u : scales.dmin.bits;
  return block;
}

}  // namespace ingot::INGOT_ISA
