#include "executor/route.h"

#include <algorithm>
#include <cmath>

#include "executor/pieces.h"

namespace ingot {

int64_t ExpertGroups::most_places(int64_t experts, int64_t used, int64_t tokens) {
  const int64_t pairs = tokens * used;
  return round_up(pairs + std::min(experts, pairs) * (KernelTable::kColumnGroup - 1),
                  KernelTable::kColumnGroup);
}

void ExpertGroups::make_room(int64_t experts, int64_t used, int64_t max_tokens) {
  for (auto* per_expert : {&active_, &count_, &first_, &first_packed_, &filled_})
    per_expert->resize(std::max<size_t>(per_expert->size(), experts));
  pair_.resize(std::max<size_t>(pair_.size(), most_places(experts, used, max_tokens)));
  packed_.resize(std::max<size_t>(packed_.size(), max_tokens * used));
}

void ExpertGroups::sort(const float* choice, int64_t tokens, int64_t experts, int64_t used,
                        int64_t multiple) {
  const auto expert_of = [&](int64_t token, int64_t k) {
    return static_cast<int32_t>(choice[token * 2 * used + k]);
  };
  tokens_ = tokens;
  used_ = used;
  std::fill_n(count_.begin(), experts, 0);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 0; k < used; ++k) ++count_[expert_of(t, k)];
  active_count_ = 0;
  int32_t place = 0, packed = 0;
  for (int32_t e = 0; e < experts; ++e) {
    if (count_[e] == 0) continue;
    active_[active_count_++] = e;
    first_[e] = place;
    first_packed_[e] = packed;
    filled_[e] = 0;
    packed += count_[e];
    const int32_t end = static_cast<int32_t>(round_up(place + count_[e], multiple));
    std::fill(pair_.begin() + place + count_[e], pair_.begin() + end, -1);
    place = end;
  }
  places_ = place;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 0; k < used; ++k) {
      const int32_t e = expert_of(t, k), pair = static_cast<int32_t>(t * used + k);
      pair_[first_[e] + filled_[e]] = pair;
      packed_[pair] = first_packed_[e] + filled_[e]++;
    }
}

void RouteOp::run(const Step& step, int member) {
  const int64_t tokens = step.rows(spec_.scores);
  if (step.batch.phase == Phase::kPrompt) {
    for (int64_t t; (t = queue_.claim(tokens)) >= 0;) route(step, t, member);
    step.barrier.wait();
  } else if (member == 0) {  // few tokens: cheaper than meeting for them
    for (int64_t t = 0; t < tokens; ++t) route(step, t, member);
  }
  if (member == 0)
    groups_.sort(step.row(spec_.out, 0), tokens, spec_.scores.width, spec_.used,
                 step.batch.phase == Phase::kPrompt ? KernelTable::kColumnGroup : 1);
}

namespace {

// out = exp(x - the largest) and returns their sum.
double powers(const KernelTable& kernels, const float* x, int64_t n, float* out) {
  const float largest = *std::max_element(x, x + n);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] - largest;
  kernels.exponentials(out, n, out);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += out[i];
  return sum;
}

// The largest that is not taken; the first of equal ones. What is no number is never larger.
int64_t best_left(const float* rank, const float* taken, int64_t n) {
  int64_t best = -1;
  for (int64_t e = 0; e < n; ++e)
    if (taken[e] == 0 && (best < 0 || rank[e] > rank[best])) best = e;
  return best;
}

}  // namespace

void RouteOp::route(const Step& step, int64_t token, int member) {
  const int64_t experts = spec_.scores.width, used = spec_.used;
  const float* scores = step.row(spec_.scores, token);
  float* out = step.row(spec_.out, token);
  float* weights = out + used;
  float* shares = scratch_.data() + member * 3 * experts;
  float* rank = shares + experts;
  float* taken = rank + experts;
  std::fill_n(taken, experts, 0.0f);
  switch (spec_.gating) {
    case Gating::SOFTMAX: {
      const double sum = powers(step.kernels, scores, experts, shares);
      for (int64_t e = 0; e < experts; ++e) shares[e] = static_cast<float>(shares[e] / sum);
      break;
    }
    case Gating::SIGMOID:
      for (int64_t e = 0; e < experts; ++e) shares[e] = -scores[e];
      step.kernels.exponentials(shares, experts, shares);
      for (int64_t e = 0; e < experts; ++e) shares[e] = 1.0f / (1.0f + shares[e]);
      break;
    case Gating::CHOSEN_SOFTMAX:
    case Gating::SPARSE_MIXER:
      std::copy_n(scores, experts, shares);
  }
  if (spec_.gating == Gating::SPARSE_MIXER) {
    mix_sparsely(scores, taken, out);
  } else {
    for (int64_t e = 0; e < experts; ++e) rank[e] = shares[e] + (spec_.bias ? spec_.bias[e] : 0);
    if (spec_.groups > 1) leave_out_groups(rank, taken);
    choose(rank, taken, out);
    for (int64_t k = 0; k < used; ++k) weights[k] = shares[static_cast<int64_t>(out[k])];
  }
  if (spec_.gating == Gating::CHOSEN_SOFTMAX) {
    const double sum = powers(step.kernels, weights, used, weights);
    for (int64_t k = 0; k < used; ++k) weights[k] = static_cast<float>(weights[k] / sum);
  }
  double total = 1;
  if (spec_.normalize) {
    total = 0;
    for (int64_t k = 0; k < used; ++k) total += weights[k];
  }
  for (int64_t k = 0; k < used; ++k) {
    weights[k] = static_cast<float>(weights[k] / total * spec_.scale);
    if (spec_.expert_scales) weights[k] *= spec_.expert_scales[static_cast<int64_t>(out[k])];
  }
}

void RouteOp::leave_out_groups(const float* rank, float* taken) const {
  const int64_t size = spec_.scores.width / spec_.groups;
  float worth[kMaxExpertGroups], passed[kMaxExpertGroups] = {};
  for (int64_t g = 0; g < spec_.groups; ++g) {
    const float* own = rank + g * size;
    float* chosen = taken + g * size;
    worth[g] = 0;
    for (int64_t k = 0; k < spec_.group_best; ++k) {
      const int64_t best = best_left(own, chosen, size);
      chosen[best] = 1;
      worth[g] += own[best];
    }
    std::fill_n(chosen, size, 1.0f);
  }
  for (int64_t k = 0; k < spec_.groups_used; ++k) {
    const int64_t best = best_left(worth, passed, spec_.groups);
    passed[best] = 1;
    std::fill_n(taken + best * size, size, 0.0f);
  }
}

void RouteOp::choose(const float* rank, float* taken, float* out) const {
  for (int64_t k = 0; k < spec_.used; ++k) {
    const int64_t best = best_left(rank, taken, spec_.scores.width);
    taken[best] = 1;
    out[k] = static_cast<float>(best);
  }
}

void RouteOp::mix_sparsely(const float* scores, float* taken, float* out) const {
  for (int64_t k = 0; k < spec_.used; ++k) {
    const int64_t best = best_left(scores, taken, spec_.scores.width);
    const float largest = scores[best];
    double sum = 0;
    for (int64_t e = 0; e < spec_.scores.width; ++e) {
      const float size = std::max(std::abs(scores[e]), largest);
      if (taken[e] == 0 && !(largest - scores[e] > spec_.near * size))
        sum += std::exp(static_cast<double>(scores[e]) - largest);
    }
    taken[best] = 1;
    out[k] = static_cast<float>(best);
    out[spec_.used + k] = static_cast<float>(1 / sum);
  }
}

}  // namespace ingot
