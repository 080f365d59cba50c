#include "executor/thread_pool.h"

#include <chrono>
#include <stdexcept>
#include <utility>

#include "system/system.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ingot {
namespace {

// How long a worker spins before it parks: longer than the pause between two steps of a
// generation (to wake a parked thread takes up to a millisecond on a virtual machine), far too
// short to be seen on an idle one.
constexpr auto kSpinBeforeParking = std::chrono::milliseconds(2);
// After this many turns the others may need the core to get here, so the thread gives it to them
// and sleeps. (If it only yielded, the scheduler would count its turns as work, and let it wait for
// them when the others have come.)
constexpr int kSpinsBeforeSleeping = 20000;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

void Barrier::wait() {
  const uint32_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    round_.notify_all();
    return;
  }
  for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
    if (spins < kSpinsBeforeSleeping) {
      relax();
    } else {
      round_.wait(round, std::memory_order_acquire);
    }
  }
}

ThreadPool::ThreadPool(int threads, Seats seats)
    : process_(system::process_id()), seats_(std::move(seats)) {
  workers_.reserve(threads > 1 ? threads - 1 : 0);
  try {
    for (int member = 1; member < threads; ++member)
      workers_.emplace_back([this, member] { work(member); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (is_copy()) {
    // What stands for the threads can be neither joined nor destroyed, so it stays.
    new std::vector<std::thread>(std::move(workers_));
  } else {
    stop();
  }
}

bool ThreadPool::is_copy() const { return system::process_id() != process_; }

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  begin_round((1u << kMemberBits) - 1);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::begin_round(uint32_t members) {
  const uint32_t number = (round_.load(std::memory_order_relaxed) >> kMemberBits) + 1;
  round_.store(number << kMemberBits | members, std::memory_order_release);
  round_.notify_all();
}

void ThreadPool::sit(int member) const {
  if (!seats_[member].cpus.empty()) system::keep_thread_to(system::cpu_set(seats_[member].cpus));
}

void ThreadPool::run(Task task, void* context, int members) {
  if (is_copy()) throw std::logic_error("the threads of this program are in another process");
  system::CpuSet before;
  const bool sits = !seats_.empty() && system::thread_cpus(before);
  if (sits) sit(0);
  this_replica = seats_.empty() ? 0 : seats_[0].replica;
  task_ = task;
  context_ = context;
  unfinished_.store(members - 1, std::memory_order_relaxed);
  begin_round(static_cast<uint32_t>(members));
  task(context, 0);
  int unfinished;
  for (int spins = 0; (unfinished = unfinished_.load(std::memory_order_acquire)) != 0; ++spins) {
    if (spins < kSpinsBeforeSleeping) {
      relax();
    } else {
      unfinished_.wait(unfinished, std::memory_order_acquire);
    }
  }
  if (sits) system::keep_thread_to(before);  // which threads that it starts would inherit
}

void ThreadPool::work(int member) {
  if (!seats_.empty()) {
    sit(member);
    this_replica = seats_[member].replica;
  }
  uint32_t seen = 0;
  while (true) {
    const auto idle_since = std::chrono::steady_clock::now();
    uint32_t round;
    for (int spins = 1; (round = round_.load(std::memory_order_acquire)) == seen; ++spins) {
      if (spins % 64 != 0 || std::chrono::steady_clock::now() - idle_since < kSpinBeforeParking) {
        relax();
      } else {
        round_.wait(seen, std::memory_order_acquire);
      }
    }
    seen = round;
    if (static_cast<uint32_t>(member) >= members_of(round)) continue;
    if (stopping_.load(std::memory_order_relaxed)) return;
    task_(context_, member);
    unfinished_.fetch_sub(1, std::memory_order_release);
    unfinished_.notify_one();
  }
}

}  // namespace ingot
