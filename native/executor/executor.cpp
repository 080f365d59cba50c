#include "executor/executor.h"

#include <chrono>

namespace ingot {

double Executor::run(const Batch& batch, const KernelTable& kernels, int members) {
  using Clock = std::chrono::steady_clock;
  for (const std::unique_ptr<Op>& op : ops_) op->reset();
  barrier_.set_members(members);
  struct Context {
    Executor* self;
    Step step;
    Clock::duration waited{};  // of member 0
  } context{this, {batch, kernels, arena_.data(), barrier_, members}};
  pool_.run(
      [](void* opaque, int member) {
        auto* c = static_cast<Context*>(opaque);
        for (const std::unique_ptr<Op>& op : c->self->ops_) {
          op->run(c->step, member);
          const auto begin = member == 0 ? Clock::now() : Clock::time_point();
          c->self->barrier_.wait();
          if (member == 0) c->waited += Clock::now() - begin;
        }
      },
      &context, members);
  return std::chrono::duration<double>(context.waited).count();
}

}  // namespace ingot
