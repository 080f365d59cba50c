// The gated delta rule; see kernels/delta.h. Its states lie as those of executor/recurrent_ops.h
// do.
#pragma once

#include "executor/recurrent_ops.h"

namespace ingot {

class DeltaRuleOp : public Op {
 public:
  struct Spec {
    ValueRef query, key, value, step, rate, out;
    const float *decay, *bias;  // [heads]
    int64_t key_heads;
    bool tiled;  // head h has key head h % key_heads, else h / (heads / key_heads)
    float epsilon;
    StateRef state;  // [heads][vectors of a head][key size][kLanes]

    int64_t heads() const { return step.width; }
    int64_t key_size() const { return key.width / key_heads; }
    int64_t value_size() const { return value.width / heads(); }
    int64_t vectors() const { return (value_size() + kLanes - 1) / kLanes; }  // of a head
    int64_t key_head(int64_t head) const {
      return tiled ? head % key_heads : head / (heads() / key_heads);
    }
  };
  explicit DeltaRuleOp(Spec spec) : spec_(spec) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  void move(const Step& step, const SequenceRun& run, int64_t vector) const;

  const Spec spec_;
  Queue queue_;
};

}  // namespace ingot
