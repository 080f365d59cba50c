// Adapters: low-rank additions to linear maps, for the rows of the sequences that use them.
//
//     y += scale * (x @ down.T) @ up.T
//
// Every adapter has a slot. A step sorts its rows by slot, so that all rows of an adapter meet its
// matrices together. What a row gets does not depend on the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "executor/step.h"
#include "executor/weight_ref.h"

namespace ingot {

// What an adapter adds to one matrix, or to each matrix of a stack: then there are as many of both
// its matrices, one after the other.
struct LowRank {
  WeightRef down;  // [rank][inputs], LoRA's A; of an embedding: [tokens][rank]
  WeightRef up;    // LoRA's B in panels: [panels][rank][kUpPanel]
  int64_t rank;
  float scale;

  // What is added to one matrix of a stack.
  LowRank of(int64_t number, int64_t stacked) const {
    LowRank one = *this;
    one.down.rows /= stacked;
    one.up.rows /= stacked;
    one.down.data += number * one.down.rows * down.row_bytes();
    one.up.data += number * one.up.rows * up.row_bytes();
    return one;
  }

  // Adds up's product with rows of `low`, which are multiplied by the scale already.
  void add(const KernelTable& kernels, int64_t begin, int64_t end, const float* low,
           int64_t low_stride, int64_t tokens, float* out, int64_t out_stride) const {
    kernels.add_up[static_cast<uint32_t>(up.type)](
        {up.data, rank, begin, end, low, low_stride, tokens, out, out_stride});
  }
};

// Matrices that will be read soon, asked for a few lines at a time: with many adapters they are too
// short for the CPU to see what comes next, and a core that asks for more lines than it can wait
// for stands still.
class Upcoming {
 public:
  void clear() {
    ranges_.clear();
    at_ = 0;
    lines_ = 0;
  }
  // Rows [begin, end).
  void add_down(const LowRank& weights, int64_t begin, int64_t end) {
    const int64_t row_bytes = weights.down.row_bytes();
    add(weights.down.data + begin * row_bytes, weights.down.data + end * row_bytes);
  }
  // What outputs [begin, end) read.
  void add_up(const LowRank& weights, int64_t begin, int64_t end) {
    const int64_t panel_bytes = weights.rank * weights.up.row_bytes();
    add(weights.up.data + begin / kUpPanel * panel_bytes,
        weights.up.data + (end + kUpPanel - 1) / kUpPanel * panel_bytes);
  }
  int64_t lines() const { return lines_; }
  // Asks for the next lines.
  void request(int64_t lines) {
    for (; lines > 0 && at_ < ranges_.size(); ++at_) {
      Range& range = ranges_[at_];
      for (; range.next < range.end; range.next += kLine)
        if (lines-- > 0)
          __builtin_prefetch(range.next, 0, 2);
        else
          return;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  struct Range {
    const uint8_t *next, *end;
  };
  void add(const uint8_t* begin, const uint8_t* end) {
    ranges_.push_back({begin, end});
    lines_ += (end - begin + kLine - 1) / kLine;
  }
  std::vector<Range> ranges_;
  size_t at_ = 0;
  int64_t lines_ = 0;
};

// The additions to one matrix, by slot.
class LowRankSlots {
 public:
  void set(int64_t slot, std::optional<LowRank> weights) {
    if (slot >= static_cast<int64_t>(slots_.size())) slots_.resize(slot + 1);
    slots_[slot] = weights;
  }
  // Null: the adapter leaves the matrix as it is.
  const LowRank* at(int64_t slot) const {
    return slot < static_cast<int64_t>(slots_.size()) && slots_[slot] ? &*slots_[slot] : nullptr;
  }

 private:
  std::vector<std::optional<LowRank>> slots_;
};

// An operation with matrices that adapters may add to.
class AdaptableOp : public Op {
 public:
  virtual int64_t parts() const = 0;
  virtual const WeightRef& matrix(int64_t part) const = 0;
  // Matrices of a stack, and rows that are read of each.
  virtual int64_t stacked() const { return 1; }
  virtual int64_t outputs(int64_t part) const { return matrix(part).rows; }
  virtual bool is_table() const { return false; }  // its rows are looked up by token
  // Between steps: what the adapter of a slot adds to a part.
  virtual void adapt(int64_t part, int64_t slot, std::optional<LowRank> weights) = 0;
};

// The rows of a step that use adapters, sorted by slot. A place is a position in that order.
class AdaptedRows {
 public:
  struct Group {
    int32_t slot;
    int32_t first, count;  // places
  };

  struct Use {
    int32_t slot;  // below 0: none
    float scale;
  };

  // `use(row)` is the adapter of each of so many rows.
  template <class UseOf>
  void sort(int64_t rows, UseOf use) {
    order_.clear();
    groups_.clear();
    places_.assign(rows, -1);
    for (int32_t row = 0; row < rows; ++row)
      if (use(row).slot >= 0) order_.push_back({row, use(row)});
    std::sort(order_.begin(), order_.end(), [](const Placed& a, const Placed& b) {
      return a.use.slot != b.use.slot ? a.use.slot < b.use.slot : a.row < b.row;
    });
    for (size_t place = 0; place < order_.size(); ++place) {
      const Placed& placed = order_[place];
      if (groups_.empty() || groups_.back().slot != placed.use.slot)
        groups_.push_back({placed.use.slot, static_cast<int32_t>(place), 0});
      ++groups_.back().count;
      places_[placed.row] = static_cast<int32_t>(place);
    }
  }

  const std::vector<Group>& groups() const { return groups_; }
  int32_t row(int64_t place) const { return order_[place].row; }
  const Use& use(int64_t place) const { return order_[place].use; }
  // Of a row; -1: it uses no adapter.
  int32_t place(int64_t row) const { return places_[row]; }

 private:
  struct Placed {
    int32_t row;
    Use use;
  };
  std::vector<Group> groups_;
  std::vector<Placed> order_;
  std::vector<int32_t> places_;
};

// Both kinds of rows: those of all tokens, and those of the tokens whose logits are wanted.
struct AdaptedStep {
  AdaptedRows all, selected;
  const AdaptedRows& of(const ValueRef& value) const {
    return value.selected || value.logits ? selected : all;
  }
};

}  // namespace ingot
