// Routing: which experts a token uses, how much each counts, and who uses an expert.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/step.h"

namespace ingot {

inline constexpr int64_t kMaxExpertsUsed = 64;  // by one token
inline constexpr int64_t kMaxExpertGroups = 64;

// The pairs of a token and an expert it uses, sorted by expert, so that all inputs of an expert
// lie next to each other. Room for the largest batch is made before the first step.
class ExpertGroups {
 public:
  void make_room(int64_t experts, int64_t used, int64_t max_tokens);
  // Places that `tokens` may take, with what fills up the columns of each expert.
  static int64_t most_places(int64_t experts, int64_t used, int64_t tokens);

  // `choice` holds, for every token, the numbers of its experts (and as many weights).
  // The columns of an expert begin at a multiple of `multiple`.
  void sort(const float* choice, int64_t tokens, int64_t experts, int64_t used, int64_t multiple);

  int64_t tokens() const { return tokens_; }
  int64_t used() const { return used_; }
  int64_t active() const { return active_count_; }        // experts that some token uses
  int64_t expert(int64_t i) const { return active_[i]; }  // in ascending order
  int64_t count(int64_t expert) const { return count_[expert]; }
  int64_t first(int64_t expert) const { return first_[expert]; }  // place of its first column
  int64_t places() const { return places_; }
  int32_t pair(int64_t place) const { return pair_[place]; }  // token * used + k; -1: none
  // The same columns without gaps: where the first of an expert is, and where a pair is.
  int64_t first_packed(int64_t expert) const { return first_packed_[expert]; }
  int64_t packed(int64_t pair) const { return packed_[pair]; }

 private:
  int64_t tokens_ = 0, used_ = 0, active_count_ = 0, places_ = 0;
  std::vector<int32_t> active_, count_, first_, first_packed_, filled_;  // per expert
  std::vector<int32_t> pair_;                                            // per place
  std::vector<int32_t> packed_;                                          // per pair
};

// out = the numbers of the chosen experts, best first, then their weights.
class RouteOp : public Op {
 public:
  struct Spec {
    ValueRef scores, out;
    int64_t used;
    Gating gating;
    bool normalize;
    float scale;
    float near;                  // of the sparse mixer
    const float* bias;           // added to choose; may be null
    const float* expert_scales;  // of the weights of each expert; may be null
    // Experts of other than the best `groups_used` groups are not chosen. A group counts as much
    // as its `group_best` largest together.
    int64_t groups, groups_used, group_best;
  };
  RouteOp(Spec spec, ExpertGroups& groups, int64_t members)
      : spec_(spec), groups_(groups), scratch_(members * spec.scores.width * 3) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  void route(const Step& step, int64_t token, int member);
  void leave_out_groups(const float* rank, float* taken) const;
  void choose(const float* rank, float* taken, float* out) const;
  void mix_sparsely(const float* scores, float* taken, float* out) const;

  const Spec spec_;
  ExpertGroups& groups_;
  std::vector<float> scratch_;  // per member: shares, ranks, whether an expert is taken
  Queue queue_;
};

}  // namespace ingot
