// A second copy of a matrix with its rows interleaved (kernels/linear_strips.h), written while the
// program may already run. Kernels read it as soon as it is there, and give the same bits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "executor/large_bytes.h"
#include "executor/seats.h"
#include "executor/step.h"
#include "executor/weight_ref.h"

namespace ingot {

struct WeightCopy {
  WeightRef matrix;
  std::vector<std::atomic<const uint8_t*>> replicas;  // null until they are written

  WeightCopy(const WeightRef& matrix, int replicas) : matrix(matrix), replicas(replicas) {}
  // The one that the calling thread reads; null: it is not there yet.
  const uint8_t* data() const { return replicas[this_replica].load(std::memory_order_acquire); }
};

// The copies of a program's matrices, one after the other in one piece of memory. If the seats of
// the team are on several NUMA nodes, each node has a replica of that piece, or the rows of a
// matrix that its members multiply first.
class WeightCopies {
 public:
  WeightCopies(const KernelTable& kernels, Seats seats)
      : kernels_(kernels), seats_(std::move(seats)) {
    for (const Seat& seat : seats_) replicas_ = std::max(replicas_, seat.replica + 1);
  }

  // The copy, to be written later, of a matrix whose parts begin at multiples of `unit` rows;
  // null: it has none.
  const WeightCopy* of(const WeightRef& matrix, int64_t unit);

  int64_t bytes() const { return bytes_ * replicas_; }
  // Whether nothing reads the matrices any more once their copies are written.
  bool replace_matrices() const { return replace_; }
  // Writes the next copy; false: all are written. Throws std::bad_alloc.
  bool write_next();

 private:
  const KernelTable::Interleaved& layout(const WeightRef& matrix) const {
    return kernels_.interleaved[static_cast<uint32_t>(matrix.type)];
  }
  int64_t size(const WeightRef& matrix) const {
    return matrix.rows * layout(matrix).row_bytes(matrix.columns);
  }

  void allocate();
  void place(int64_t begin, int64_t bytes);

  const KernelTable& kernels_;
  const Seats seats_;
  int replicas_ = 1;
  std::list<WeightCopy> copies_;
  std::list<WeightCopy>::iterator next_ = copies_.end();
  int64_t bytes_ = 0, written_ = 0;
  bool replace_ = true;
  std::vector<LargeBytes> memory_;  // of each replica
};

// The fewest rows that multiply_rows() of a generation takes without more work for each: those of a
// group (kernels/linear_few.h), of a strip, or of several strips (kernels/linear_strips.h).
inline constexpr int64_t kStripRows = 16;
inline int64_t rows_at_once(const Step& step, const WeightRef& weight, int64_t columns) {
  constexpr int64_t kGroup = 12, kStrips = 48;
  const uint32_t type = static_cast<uint32_t>(weight.type);
  // A copy that is not there yet may come between two groups, where no strip begins.
  if (weight.copy && !weight.copy->data()) return kStrips;
  const bool bytes = step.kernels.generate_kind[type] == InputKind::kBytes;
  if (!weight.copy && !bytes) return kGroup;
  return columns > kStripRows / 2 ? kStrips : kStripRows;
}

// Rows [begin, end) of a matrix times every column, as KernelTable::Linear.
inline void multiply_rows(const Step& step, const WeightRef& weight, const LinearInput& input,
                          int64_t begin, int64_t end, float* out, int64_t out_stride,
                          uint8_t* scratch) {
  const bool prompt = step.batch.phase == Phase::kPrompt;
  const uint32_t type = static_cast<uint32_t>(weight.type);
  const KernelTable::Interleaved& copied = step.kernels.interleaved[type];
  const auto of_copy = prompt ? copied.prompt : copied.generate;
  const uint8_t* copy = weight.copy && of_copy ? weight.copy->data() : nullptr;
  if (copy) {
    of_copy(copy, copied.row_bytes(weight.columns), input, begin, end, out, out_stride, scratch);
  } else {
    const auto kernel = prompt ? step.kernels.prompt[type] : step.kernels.generate[type];
    kernel(weight.data, weight.row_bytes(), input, begin, end, out, out_stride, scratch);
  }
}

}  // namespace ingot
