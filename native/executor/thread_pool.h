// A fixed team of threads that runs one function at a time, together: all of them, or the first
// few.
//
// Workers spin for a moment after each run, because the next step usually follows at
// once, and then park: an idle pool uses no CPU. Inside a run the team meets at
// barriers, many per step, and spins there, too; it sleeps only where cores are short.
//
// A fork copies the pool and not its threads: in the child it refuses to run, and goes without
// waiting for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "executor/seats.h"

namespace ingot {

// All members of a team wait until the last has come.
class Barrier {
 public:
  explicit Barrier(int members) : members_(members) {}
  void wait();
  void set_members(int members) { members_ = members; }  // while nobody waits

 private:
  int members_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
};

class ThreadPool {
 public:
  // Throws std::system_error, and leaves no thread, if the system has too few for it. Members keep
  // to their seats, if they have some, and so does a thread that calls run() until that returns.
  ThreadPool(int threads, Seats seats);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(context, member) once for every member 0 .. members-1, of size() at most, member 0
  // on the calling thread, and returns when all are done. The task must not throw. Throws
  // std::logic_error in a process that has the pool from a fork.
  using Task = void (*)(void* context, int member);
  void run(Task task, void* context, int members);

 private:
  void work(int member);
  void sit(int member) const;
  void stop();
  bool is_copy() const;  // made by a fork

  const int64_t process_;
  const Seats seats_;
  std::vector<std::thread> workers_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  // The number of the run, then its members: read together, because those who do not take part in
  // a run are not waited for, and the next one may begin at any moment.
  static constexpr uint32_t kMemberBits = 12;
  static uint32_t members_of(uint32_t round) { return round & ((1u << kMemberBits) - 1); }
  void begin_round(uint32_t members);
  alignas(64) std::atomic<uint32_t> round_{0};
  alignas(64) std::atomic<int> unfinished_{0};  // workers still in the current run
  std::atomic<bool> stopping_{false};
};

}  // namespace ingot
