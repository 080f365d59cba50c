#include "executor/weight_copy.h"

namespace ingot {

const WeightCopy* WeightCopies::of(const WeightRef& matrix, int64_t unit) {
  const KernelTable::Interleaved& kernels = layout(matrix);
  if (kernels.rows == 0 || unit % kernels.rows) return nullptr;
  for (const WeightCopy& known : copies_)
    if (known.matrix.data == matrix.data) return &known;
  copies_.emplace_back(matrix);
  if (next_ == copies_.end()) --next_;
  bytes_ += size(matrix);
  replace_ &= kernels.prompt != nullptr;
  return &copies_.back();
}

bool WeightCopies::write_next() {
  if (next_ == copies_.end()) return false;
  if (!memory_.data()) memory_ = LargeBytes(bytes_);
  uint8_t* out = memory_.data() + written_;
  const WeightRef& matrix = next_->matrix;
  layout(matrix).write(matrix.data, matrix.row_bytes(), matrix.rows, matrix.columns, out);
  next_->data.store(out, std::memory_order_release);
  written_ += size(matrix);
  ++next_;
  return true;
}

}  // namespace ingot
