// Attention over latents in its expanded form: keys and values of each head are made of the latents
// that the cache holds, and the unmapped queries of a prompt attend to them.
//
// A piece of work is one head of one sequence: its matrices are decoded once, and each block of
// latents is expanded once for all tokens of the step.
#pragma once

#include <vector>

#include "executor/ops.h"

namespace ingot {

// A matrix of each head.
struct HeadMatrixRef {
  WeightRef weight;     // [heads][rows of a head]
  int64_t first, rows;  // of a head's rows, those that are read
};

class ExpandedAttention {
 public:
  struct Spec {
    ValueRef query, out;
    CacheLayer cache;
    int64_t heads;
    float scale, softcap;
    HeadMatrixRef key, value;
    bool latent_rows;  // the rows of `key` are those of latents, else those of keys

    int64_t latent() const { return cache.shared_value; }
    int64_t rotary() const { return cache.head_size - cache.shared_value; }
    int64_t key_size() const { return latent_rows ? key.weight.columns : key.rows; }
    int64_t value_room() const { return (value.rows + 31) / 32 * 32; }  // as kernels want it
  };

  // Working memory for the largest of the model, shared by all layers.
  struct Buffers {
    int64_t members, max_tokens;
    int64_t floats = 0;  // per member
    std::vector<float> memory;
    std::vector<const float*> queries;  // per member, max_tokens each
    std::vector<AttendRow> rows;        // the same
    Buffers(int64_t members, int64_t max_tokens) : members(members), max_tokens(max_tokens) {}
    void make_room(const Spec& spec);
  };

  ExpandedAttention(Spec spec, Buffers& buffers);
  void reset() { queue_.reset(); }
  void run(const Step& step, int member);

 private:
  void run_head(const Step& step, const SequenceRun& run, int64_t head, int member);
  void decode_turned(const Step& step, const HeadMatrixRef& matrix, int64_t head, int64_t width,
                     float* panel, float* out) const;

  const Spec spec_;
  Buffers& buffers_;
  Queue queue_;
};

}  // namespace ingot
