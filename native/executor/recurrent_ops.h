// Operations that keep a state of every sequence between its tokens.
//
// States lie in blocks of a cache group of their own: the block of a run of kKvBlockTokens
// positions holds the state after the last of them that was computed. A step reads the state
// before its first token, writes that after its last, and, if runs that it passes have a block,
// those at their ends. Work is split by channels; the tokens of a sequence go one after the other.
#pragma once

#include <algorithm>
#include <vector>

#include "executor/ops.h"

namespace ingot {

// Where an operation's states lie.
struct StateRef {
  int group;
  uint8_t* pool;
  int64_t block_bytes;
  int64_t offset;  // inside a block

  // The state in the block of a run of positions; null if it has none.
  float* of(const SequenceRun& run, int64_t positions) const {
    const int32_t block = run.tables[group][positions];
    return block < 0 ? nullptr : reinterpret_cast<float*>(pool + block * block_bytes + offset);
  }
};

// A sequence's way through a step.
class StateWalk {
 public:
  StateWalk(const Step& step, const SequenceRun& run, const StateRef& ref)
      : run_(run), ref_(ref), begin_(step.batch.positions[run.first]), end_(begin_ + run.count) {}

  // The state before the first token; null at the beginning of a text.
  const float* source() const {
    return begin_ == 0 ? nullptr : ref_.of(run_, (begin_ - 1) / kKvBlockTokens);
  }
  // The state after the last one.
  float* target() const { return ref_.of(run_, last()); }

  // Runs whose end is passed, and where the state there goes, if anywhere.
  int64_t first() const { return begin_ / kKvBlockTokens; }
  int64_t last() const { return (end_ - 1) / kKvBlockTokens; }
  float* kept(int64_t run) const { return ref_.of(run_, run); }
  // What follows is for operations that change a part of the state token by token.
  // The part after the last token, as it was before the first.
  float* start(int64_t offset, int64_t floats) const {
    float* state = target() + offset;
    if (!source())
      std::fill_n(state, floats, 0.0f);
    else if (source() != target())
      std::copy_n(source() + offset, floats, state);
    return state;
  }
  // Calls move(from, to), with tokens of the step, up to its last, and keeps the part wherever a
  // state is kept on the way.
  template <class Move>
  void move_on(const float* state, int64_t offset, int64_t floats, Move move) const {
    int64_t done = 0;
    for (int64_t r = first(); r < last(); ++r) {
      float* kept_state = kept(r);
      if (!kept_state) continue;
      move(done, tokens_to_end_of(r));
      done = tokens_to_end_of(r);
      std::copy_n(state, floats, kept_state + offset);
    }
    move(done, end_ - begin_);
  }

  // Tokens of the step up to the end of a run.
  int64_t tokens_to_end_of(int64_t run) const { return (run + 1) * kKvBlockTokens - begin_; }

 private:
  const SequenceRun& run_;
  const StateRef& ref_;
  const int64_t begin_, end_;
};

// out = bias + a causal convolution of every channel of source, or silu of that
class CausalConvOp : public Op {
 public:
  struct Spec {
    ValueRef source, out;
    const float* weight;  // [channels][taps]
    const float* bias;    // may be null
    bool silu;
    int64_t taps;
    StateRef state;  // [taps - 1][channels]
  };
  explicit CausalConvOp(Spec spec);
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  void convolve(const Step& step, const SequenceRun& run, int64_t begin, int64_t end) const;

  const Spec spec_;
  std::vector<float> weight_;         // [taps][channels]
  const std::vector<float> no_bias_;  // in the place of one
  const std::vector<float> nothing_;  // before the first token
  Queue queue_;
};

// A state space; see kernels/recurrent.h.
class StateScanOp : public Op {
 public:
  struct Spec {
    ValueRef x, step, b, c, out;
    const float* decay;  // [heads][states, or 1]
    const float* skip;   // [heads]
    bool one_decay;      // of a head, for all elements of its states
    int64_t groups;
    StateRef state;  // [groups][vectors of a group][states][kLanes]

    int64_t group_channels() const { return x.width / groups; }
    int64_t vectors() const { return (group_channels() + kLanes - 1) / kLanes; }
    int64_t states() const { return b.width / groups; }
  };
  explicit StateScanOp(Spec spec);
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  void scan(const Step& step, const SequenceRun& run, int64_t vector) const;
  // Rows of the heads [heads][columns] for every channel: [groups][vectors][columns][kLanes].
  std::vector<float> in_lanes(const float* rows, int64_t columns) const;

  const Spec spec_;
  const std::vector<float> decay_;  // [groups][vectors of a group][states, or 1][kLanes]
  const std::vector<float> skip_;   // [groups][vectors of a group][kLanes]
  Queue queue_;
};

}  // namespace ingot
