#include "executor/executor.h"

namespace ingot {

void Executor::run(const Batch& batch, const KernelTable& kernels) {
  for (const std::unique_ptr<Op>& op : ops_) op->reset();
  struct Context {
    Executor* self;
    Step step;
  } context{this, {batch, kernels, arena_.data(), barrier_, threads()}};
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
