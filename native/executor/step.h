// One step: what comes in, where values live, and how members share the work.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "executor/thread_pool.h"
#include "isa/table.h"

namespace ingot {

enum class Phase { kPrompt, kGeneration };

// Tokens of one generation step; more sequences take several steps.
inline constexpr int64_t kMaxGenerationTokens = 64;

// Tokens of one sequence that stand next to each other in a batch.
struct SequenceRun {
  int32_t first;  // token of the batch
  int32_t count;
  const int32_t* const* tables;  // per cache group, the block of each run of positions
  int32_t encoded;               // positions at its beginning that an encoder wrote
  bool expanded;                 // latents are expanded for its tokens, which are a prompt's
};

struct AdaptedStep;  // executor/adapters.h

struct Batch {
  int32_t tokens;
  const int32_t* ids;
  const int32_t* positions;
  const int32_t* types;  // null: all 0
  const float* rows;     // [tokens][width], of a program that takes rows
  int32_t runs;
  const SequenceRun* run;
  int32_t outputs;  // tokens whose logits are wanted
  const int32_t* output;
  Phase phase;
  float* logits;               // [outputs][vocabulary]
  const AdaptedStep* adapted;  // null: no sequence uses an adapter
};

// A value's place: `offset` bytes per token of the batch from the start of the arena.
struct ValueRef {
  int64_t offset;
  int64_t width;
  bool selected;  // has a row for each output token, not for each token
  bool logits;    // lives in the caller's buffer
};

// Hands out pieces of a range to whoever asks next.
class Queue {
 public:
  void reset() { next_.store(0, std::memory_order_relaxed); }
  // The next piece, or -1.
  int64_t claim(int64_t count) {
    const int64_t piece = next_.fetch_add(1, std::memory_order_relaxed);
    return piece < count ? piece : -1;
  }

 private:
  alignas(64) std::atomic<int64_t> next_{0};
};

// The same, but every member first takes the pieces of its own share, in order, and helps the
// others only then: what it reads next in memory follows what it read last.
class Shares {
 public:
  explicit Shares(int64_t members)
      : members_(members), next_(std::make_unique<Cursor[]>(static_cast<size_t>(members))) {}
  void reset() {
    for (int64_t m = 0; m < members_; ++m) next_[m].piece.store(0, std::memory_order_relaxed);
  }
  // The share of a member: pieces [first, second).
  static std::pair<int64_t, int64_t> own(int64_t count, int64_t member, int64_t members) {
    return {count * member / members, count * (member + 1) / members};
  }
  int64_t claim(int64_t count, int member) {
    for (int64_t i = 0; i < members_; ++i) {
      const int64_t owner = (member + i) % members_;
      const auto [begin, end] = own(count, owner, members_);
      std::atomic<int64_t>& next = next_[owner].piece;
      // A look first: where nothing is left, nobody takes the line from the others.
      if (begin + next.load(std::memory_order_relaxed) >= end) continue;
      const int64_t piece = begin + next.fetch_add(1, std::memory_order_relaxed);
      if (piece < end) return piece;
    }
    return -1;
  }

 private:
  struct alignas(64) Cursor {
    std::atomic<int64_t> piece{0};
  };
  const int64_t members_;
  const std::unique_ptr<Cursor[]> next_;
};

struct Step {
  const Batch& batch;
  const KernelTable& kernels;
  uint8_t* arena;
  Barrier& barrier;
  int members;

  int64_t rows(const ValueRef& value) const {
    return value.selected || value.logits ? batch.outputs : batch.tokens;
  }
  float* row(const ValueRef& value, int64_t index) const {
    float* first =
        value.logits ? batch.logits : reinterpret_cast<float*>(arena + value.offset * batch.tokens);
    return first + index * value.width;
  }
};

// An operation of the program. All members call run() together; a run leaves nothing
// behind that depends on which member did what. The caller puts a barrier after it.
class Op {
 public:
  virtual ~Op() = default;
  virtual void reset() {}  // before every step, by one member
  virtual void run(const Step& step, int member) = 0;
};

}  // namespace ingot
