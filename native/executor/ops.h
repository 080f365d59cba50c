// The operations a program is made of. Each says what it computes; weights are views
// into the mapped file, biases and norm weights are float32.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "executor/adapters.h"
#include "executor/cache_layout.h"
#include "executor/step.h"
#include "executor/weight_ref.h"

namespace ingot {

struct NormRef {
  const float* weight;
  const float* bias;  // may be null
  int64_t count;      // of weights: one run's, or those of all runs of a row
  int64_t length;     // of a run
  float epsilon;
  NormKind kind;

  // In place or not; the row is cut into runs of `length`.
  void apply(const KernelTable& kernels, const float* x, int64_t width, float* out) const {
    for (int64_t i = 0; i < width; i += length) {
      const int64_t own = i % count;
      (kind == NormKind::LAYER ? kernels.layer_norm : kernels.rms_norm)(
          x + i, weight + own, bias ? bias + own : nullptr, length, epsilon, out + i);
    }
  }
};

// out = scale * (weight[token] + what the token's adapter adds) + positions[position] + types[type]
class EmbedOp : public AdaptableOp {
 public:
  struct Spec {
    WeightRef weight;
    float scale;
    std::optional<WeightRef> positions;
    const float* types;  // a row each; may be null
    ValueRef out;
  };
  EmbedOp(Spec spec, int members)
      : spec_(std::move(spec)),
        members_(members),
        rows_(spec_.positions ? spec_.weight.columns * members : 0) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;
  int64_t parts() const override { return 1; }
  const WeightRef& matrix(int64_t) const override { return spec_.weight; }
  bool is_table() const override { return true; }
  void adapt(int64_t part, int64_t slot, std::optional<LowRank> weights) override;

 private:
  void add_adapter(const Step& step, int64_t token, int member, float* out);

  const Spec spec_;
  const int64_t members_;
  std::vector<float> rows_;  // one of positions for each member
  LowRankSlots adapters_;
  int64_t rank_ = 0;        // the largest so far
  std::vector<float> low_;  // per member: a row of that rank
  Queue queue_;
};

// out = the rows that the caller hands in, one for each token
class TakeRowsOp : public Op {
 public:
  explicit TakeRowsOp(ValueRef out) : out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef out_;
  Queue queue_;
};

// out = norm(source) + residual
class NormOp : public Op {
 public:
  NormOp(NormRef norm, ValueRef source, std::optional<ValueRef> residual, ValueRef out)
      : norm_(norm), source_(source), residual_(residual), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const NormRef norm_;
  const ValueRef source_;
  const std::optional<ValueRef> residual_;
  const ValueRef out_;
  Queue queue_;
};

// out = activation(gate) * up, or activation(gate) where there is no up
class ActivateOp : public Op {
 public:
  ActivateOp(ValueRef gate, std::optional<ValueRef> up, Activation kind, ValueRef out)
      : gate_(gate), up_(up), kind_(kind), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef gate_;
  const std::optional<ValueRef> up_;
  const Activation kind_;
  const ValueRef out_;
  Queue queue_;
};

// out = left + right
class AddOp : public Op {
 public:
  AddOp(ValueRef left, ValueRef right, ValueRef out) : left_(left), right_(right), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef left_, right_, out_;
  Queue queue_;
};

// out = factor * source * weight
class ScaleOp : public Op {
 public:
  struct Spec {
    ValueRef source, out;
    float factor;
    const float* weight;  // may be null
    bool single;          // one number for all elements
  };
  explicit ScaleOp(Spec spec) : spec_(spec) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const Spec spec_;
  Queue queue_;
};

// out = max(source - mean - deviations * standard deviation, 0), both of the row
class KeepPeaksOp : public Op {
 public:
  KeepPeaksOp(ValueRef source, float deviations, ValueRef out)
      : source_(source), deviations_(deviations), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef source_;
  const float deviations_;
  const ValueRef out_;
  Queue queue_;
};

// out = xielu(source); see kernels/rowwise.h
class XieluOp : public Op {
 public:
  struct Spec {
    ValueRef source, out;
    float rise, fall, slope;
  };
  explicit XieluOp(Spec spec) : spec_(spec) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const Spec spec_;
  Queue queue_;
};

// out = source * (1 + scale * log(1 + floor((position + offset) / length)))
class TemperOp : public Op {
 public:
  struct Spec {
    ValueRef source, out;
    double scale;
    int64_t length, offset;
  };
  explicit TemperOp(Spec spec) : spec_(spec) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const Spec spec_;
  Queue queue_;
};

// out = the rows of source that logits are wanted for
class SelectOp : public Op {
 public:
  SelectOp(ValueRef source, ValueRef out) : source_(source), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef source_, out_;
  Queue queue_;
};

// out = cap * tanh(source / cap)
class SoftCapOp : public Op {
 public:
  SoftCapOp(ValueRef source, float cap, ValueRef out) : source_(source), cap_(cap), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef source_;
  const float cap_;
  const ValueRef out_;
  Queue queue_;
};

struct Rotary {
  std::vector<double> frequencies;  // radians per position, one per pair
  double magnitude;
  RopeLayout layout;

  bool operator==(const Rotary&) const = default;
};

// The cosines and sines of every token's position, once per step for all layers.
class RotaryTable : public Op {
 public:
  RotaryTable(Rotary rotary, int64_t max_tokens)
      : rotary_(std::move(rotary)), values_(2 * rotary_.frequencies.size() * max_tokens) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

  const Rotary& rotary() const { return rotary_; }
  int64_t pairs() const { return static_cast<int64_t>(rotary_.frequencies.size()); }
  bool interleaved() const { return rotary_.layout == RopeLayout::INTERLEAVED; }
  const float* cos(int64_t token) const { return values_.data() + 2 * token * pairs(); }
  const float* sin(int64_t token) const { return cos(token) + pairs(); }

 private:
  const Rotary rotary_;
  std::vector<float> values_;
  Queue queue_;
};

// out = the heads of source, rotated
class RopeOp : public Op {
 public:
  RopeOp(ValueRef source, int64_t head_size, const RotaryTable* rotary, ValueRef out)
      : source_(source), head_size_(head_size), rotary_(rotary), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef source_;
  const int64_t head_size_;
  const RotaryTable* rotary_;
  const ValueRef out_;
  Queue queue_;
};

// Normalize and rotate query and key heads in place; store key and value in the cache. If its
// values are parts of keys, a key is stored as what comes in as key and then as value. There is no
// query if another program attends to them.
class StoreKvOp : public Op {
 public:
  struct Spec {
    std::optional<ValueRef> query;
    ValueRef key, value;
    std::optional<NormRef> query_norm, key_norm;
    const RotaryTable* rotary;  // null: no rotary embedding
    bool norms_last;            // after the rotary embedding
    CacheLayer cache;
  };
  explicit StoreKvOp(Spec spec) : spec_(std::move(spec)) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  void turn(const Step& step, const ValueRef& value, const std::optional<NormRef>& norm,
            int64_t token) const;
  void rotate(const Step& step, const ValueRef& value, int64_t token) const;
  void store(const Step& step, const SequenceRun& run, int64_t token);

  const Spec spec_;
  Queue queue_;
};

// out = attention(query) over the cache
class AttendOp : public Op {
 public:
  struct Spec {
    ValueRef query, out;
    CacheLayer cache;
    int64_t heads, kv_heads;
    float scale, softcap;
    int64_t window;
    bool chunked;        // windows lie side by side
    const float* sinks;  // one per head; may be null
    // else a token sees its whole sequence, which is all in the batch, or window / 2 tokens of it
    // on either side
    bool causal;
    SeenPart seen;
    const float* slopes;      // one per head, for distances; may be null
    std::vector<float> bias;  // [heads][2 * (reach + kKvBlockTokens)], see AttendTask; may be empty
    int64_t reach;
    bool expandable;                 // sequences that are expanded are left out
    std::optional<ValueRef> chosen;  // positions, see AttendTask
  };
  // Positions per part of a generation's walk: parts run side by side and are joined in
  // order, however many threads there are.
  static constexpr int64_t kPartPositions = 512;
  static constexpr int kTileRows = 32;

  // Working memory for the largest attention of the model, shared by all layers.
  struct Buffers {
    int64_t members, max_tokens, max_parts;  // max_tokens of a generation
    int64_t scratch_floats = 0;              // per member
    std::vector<float> scratch;
    std::vector<AttendRow> part_rows;  // [token][head][part]
    std::vector<float> part_mixes;     // [token][head][part][element]
    Buffers(int64_t members, int64_t max_tokens, int64_t max_positions);
    void make_room(int64_t heads, int64_t head_size);
  };

  AttendOp(Spec spec, Buffers& buffers);
  void reset() override {
    walk_.reset();
    join_.reset();
  }
  void run(const Step& step, int member) override;

 private:
  // Tokens and query heads of one key head that are worked on together: kTileRows at most.
  struct Tile {
    const SequenceRun* run;
    int64_t first, tokens;  // within the run
    int64_t key_head;
    int64_t first_head, heads;  // of all query heads
  };
  // Query heads of a key head in one tile, and how many such shares there are of all heads.
  int64_t share() const { return std::min<int64_t>(spec_.heads / spec_.kv_heads, kTileRows); }
  int64_t shares() const {
    return spec_.kv_heads * ((spec_.heads / spec_.kv_heads + share() - 1) / share());
  }
  // Positions that a token sees; the first is rounded down to a block.
  struct Range {
    int64_t begin, end;
  };
  Range seen_by(const SequenceRun& run, int64_t position) const;
  // Tiles of a prompt's tokens.
  int64_t tiles_of(const SequenceRun& run) const {
    const int64_t tokens = std::max<int64_t>(1, kTileRows / share());
    return spec_.expandable && run.expanded ? 0 : (run.count + tokens - 1) / tokens;
  }
  Tile tile_of(const SequenceRun* run, int64_t first, int64_t tokens, int64_t index) const;
  void attend_part(const Step& step, const Tile& tile, int64_t begin, int64_t end, AttendRow* rows,
                   float* mix, float* scratch);
  void run_tiles(const Step& step, int member);
  void run_parts(const Step& step, int member);

  const Spec spec_;
  Buffers& buffers_;
  Queue walk_, join_;
};

}  // namespace ingot
