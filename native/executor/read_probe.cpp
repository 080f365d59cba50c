#include "executor/read_probe.h"

#include <atomic>
#include <cstring>

#include "executor/parallel_for.h"

namespace ingot {

uint64_t read_through(const uint8_t* data, int64_t size, int threads) {
  constexpr int64_t kPiece = 256;
  std::atomic<uint64_t> total{0};
  parallel_for(size / kPiece, 1, threads, [&](int64_t begin, int64_t end) {
    uint64_t sums[kPiece / 8] = {};
    for (int64_t piece = begin; piece < end; ++piece) {
      uint64_t words[kPiece / 8];
      std::memcpy(words, data + piece * kPiece, kPiece);
      for (int64_t i = 0; i < kPiece / 8; ++i) sums[i] += words[i];
    }
    uint64_t sum = 0;
    for (const uint64_t part : sums) sum += part;
    total += sum;
  });
  return total;
}

}  // namespace ingot
