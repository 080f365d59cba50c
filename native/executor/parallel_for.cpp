#include "executor/parallel_for.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace ingot {

namespace {

// Threads that are joined however the scope ends. libc++ before LLVM 20 hides std::jthread.
struct Joined {
  std::vector<std::thread> threads;

  ~Joined() {
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace

void parallel_for(int64_t count, int64_t grain, int threads,
                  const std::function<void(int64_t begin, int64_t end)>& body) {
  if (count <= 0) return;
  const int64_t pieces =
      std::clamp<int64_t>(count / std::max<int64_t>(grain, 1), 1, std::max(threads, 1));
  if (pieces == 1) return body(0, count);

  std::vector<std::exception_ptr> errors(pieces);
  const auto run = [&](int64_t piece) {
    try {
      body(count * piece / pieces, count * (piece + 1) / pieces);
    } catch (...) {
      errors[piece] = std::current_exception();
    }
  };
  {
    Joined workers;
    workers.threads.reserve(pieces - 1);
    int64_t piece = 1;
    try {
      for (; piece < pieces; ++piece) workers.threads.emplace_back(run, piece);
    } catch (const std::system_error&) {
    }
    run(0);
    for (; piece < pieces; ++piece) run(piece);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace ingot
