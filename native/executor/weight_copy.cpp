#include "executor/weight_copy.h"

#include <cstring>

#include "system/system.h"

namespace ingot {

const WeightCopy* WeightCopies::of(const WeightRef& matrix, int64_t unit) {
  const KernelTable::Interleaved& kernels = layout(matrix);
  if (kernels.rows == 0 || unit % kernels.rows) return nullptr;
  for (const WeightCopy& known : copies_)
    if (known.matrix.data == matrix.data) return &known;
  copies_.emplace_back(matrix, replicas_);
  if (next_ == copies_.end()) --next_;
  bytes_ += size(matrix);
  replace_ &= kernels.prompt != nullptr;
  return &copies_.back();
}

// Asks for the rows of a matrix to lie where the members are whose share they are
// (executor/step.h).
void WeightCopies::place(int64_t begin, int64_t bytes) {
  const int64_t members = static_cast<int64_t>(seats_.size());
  for (int64_t first = 0, end; first < members; first = end) {
    for (end = first + 1; end < members && seats_[end].node == seats_[first].node;) ++end;
    const int64_t from = bytes * first / members, to = bytes * end / members;
    system::prefer_node(memory_[0].data() + begin + from, to - from, seats_[first].node);
  }
}

void WeightCopies::allocate() {
  memory_ = std::vector<LargeBytes>(replicas_);
  for (LargeBytes& memory : memory_) memory = LargeBytes(bytes_);
  if (replicas_ == 1) {
    int64_t begin = 0;
    for (const WeightCopy& copy : copies_) {
      place(begin, size(copy.matrix));
      begin += size(copy.matrix);
    }
  } else {
    for (const Seat& seat : seats_)
      system::prefer_node(memory_[seat.replica].data(), bytes_, seat.node);
  }
}

bool WeightCopies::write_next() {
  if (next_ == copies_.end()) return false;
  if (memory_.empty()) allocate();
  const WeightRef& matrix = next_->matrix;
  uint8_t* first = memory_[0].data() + written_;
  layout(matrix).write(matrix.data, matrix.row_bytes(), matrix.rows, matrix.columns, first);
  for (int r = 0; r < replicas_; ++r) {
    uint8_t* out = memory_[r].data() + written_;
    if (r > 0) std::memcpy(out, first, size(matrix));
    next_->replicas[r].store(out, std::memory_order_release);
  }
  written_ += size(matrix);
  ++next_;
  return true;
}

}  // namespace ingot
