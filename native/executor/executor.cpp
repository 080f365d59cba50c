#include "executor/executor.h"

#include <new>

namespace ingot {

Executor::Arena Executor::allocate(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* p = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, rounded));
  if (!p) throw std::bad_alloc();
  return Arena(p);
}

void Executor::run(const Batch& batch, const KernelTable& kernels) {
  for (const std::unique_ptr<Op>& op : ops_) op->reset();
  struct Context {
    Executor* self;
    Step step;
  } context{this, {batch, kernels, arena_.get(), barrier_, threads()}};
  pool_.run(
      [](void* opaque, int member) {
        auto* c = static_cast<Context*>(opaque);
        for (const std::unique_ptr<Op>& op : c->self->ops_) {
          op->run(c->step, member);
          c->self->barrier_.wait();
        }
      },
      &context);
}

}  // namespace ingot
