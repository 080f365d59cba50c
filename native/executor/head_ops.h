// Linear maps of single heads: every head has a matrix of its own.
#pragma once

#include <vector>

#include "executor/ops.h"

namespace ingot {

// out[head] = source[head] without its first elements, then the head's matrix times those; or those
// themselves, as many as there is room for, of a sequence whose latents are expanded.
//
// The matrix is [rows][columns] of the head's, or its transpose. It is decoded a few rows at a
// time, once for all tokens of the batch.
class HeadLinearOp : public Op {
 public:
  struct Spec {
    ValueRef source, out;
    WeightRef weight;  // [heads][rows of a head]
    int64_t heads;
    int64_t first, rows;  // of a head's rows, those that are read
    bool transposed;      // what is read is multiplied from the other side
    bool expandable;      // sequences that are expanded pass unmapped

    int64_t inputs() const { return transposed ? rows : weight.columns; }
    int64_t results() const { return transposed ? weight.columns : rows; }
    int64_t kept() const { return source.width / heads - inputs(); }
  };
  static constexpr int64_t kPanelRows = 16;  // that are decoded together

  // Decoded rows, for the widest matrix of the model.
  struct Buffers {
    int64_t members;
    int64_t panel_floats = 0;  // per member
    std::vector<float> panels;
    explicit Buffers(int64_t members) : members(members) {}
    void make_room(int64_t columns);
  };

  HeadLinearOp(Spec spec, Buffers& buffers) : spec_(spec), buffers_(buffers) {
    buffers_.make_room(spec_.weight.columns);
  }
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  void run_head(const Step& step, int64_t head, float* panel) const;
  void map_rows(const Step& step, int64_t head, int64_t begin, int64_t end, float* panel) const;
  // The row after the last that is mapped, or not, as row `begin` is.
  int64_t end_of_rows(const Step& step, int64_t begin, bool* expanded) const;

  const Spec spec_;
  Buffers& buffers_;
  Queue queue_;
};

// out[head] = elements of source[head] from `first` on
class PickHeadsOp : public Op {
 public:
  struct Spec {
    ValueRef source, out;
    int64_t heads, first;
  };
  explicit PickHeadsOp(Spec spec) : spec_(spec) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const Spec spec_;
  Queue queue_;
};

}  // namespace ingot
