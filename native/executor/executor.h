// Runs a program: every operation in order, the members of the team together, a barrier
// after each. Everything a step needs is allocated when the program is built.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "executor/aligned.h"
#include "executor/step.h"
#include "executor/thread_pool.h"

namespace ingot {

class Executor {
 public:
  Executor(int threads, Seats seats, int64_t arena_bytes_per_token, int64_t max_tokens)
      : pool_(threads, std::move(seats)),
        barrier_(threads),
        arena_(arena_bytes_per_token * max_tokens) {}

  int threads() const { return pool_.size(); }
  void add(std::unique_ptr<Op> op) { ops_.push_back(std::move(op)); }
  // With the first `members` threads. Returns the seconds that one of them waited for others.
  double run(const Batch& batch, const KernelTable& kernels, int members);
  const uint8_t* arena() const { return arena_.data(); }

 private:
  ThreadPool pool_;
  Barrier barrier_;
  AlignedBytes arena_;
  std::vector<std::unique_ptr<Op>> ops_;
};

}  // namespace ingot
