// Which positions a token of a sparse attention sees.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/cache_layout.h"
#include "executor/step.h"

namespace ingot {

// out = the positions whose keys score highest, in ascending order; of equal scores the earlier
// ones. A token that sees no more positions than `out` is wide takes all, and -1 fills its row.
//
// Tokens of a prompt are scored side by side. The past of a generation's few tokens is scored in
// parts, by all members together.
class ChooseOp : public Op {
 public:
  struct Spec {
    ValueRef query, weights, out;
    CacheLayer cache;
    int64_t heads;
  };
  static constexpr int64_t kPartPositions = 512;

  // Scores of a token and a decoded block, for each member; shared by all layers.
  struct Buffers {
    int64_t members, positions;  // rounded up to whole blocks
    int64_t key_floats = 0;
    std::vector<float> scores, keys;
    Buffers(int64_t members, int64_t max_positions);
    void make_room(int64_t head_size);
  };

  ChooseOp(Spec spec, Buffers& buffers);
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  // Positions that a token sees, if it has to choose; else 0.
  int64_t choosing(const Step& step, int64_t token) const;
  float* scores(int64_t slot) { return buffers_.scores.data() + slot * buffers_.positions; }
  void score(const Step& step, int64_t token, int64_t begin, int64_t end, int64_t slot, int member);
  void choose(const Step& step, int64_t token, int64_t slot);
  void run_tokens(const Step& step, int member);
  void run_parts(const Step& step, int member);

  const Spec spec_;
  Buffers& buffers_;
  Queue queue_;
};

}  // namespace ingot
