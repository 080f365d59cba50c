// How rows of a weight are cut into pieces of work.
#pragma once

#include <algorithm>
#include <cstdint>

#include "executor/ops.h"

namespace ingot {

// Pieces of a generation's work: enough bytes to stream, few enough that the members finish
// together, in rows that the kernels take at once.
inline constexpr int64_t kPieceBytes = 192 << 10;
inline constexpr int64_t kRowMultiple = 48;
inline constexpr int64_t kMaxPieceRows = 768;  // the scratch of gated results holds these
inline constexpr int64_t kPiecesPerMember = 4;

inline int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

inline int64_t count_pieces(int64_t rows, int64_t each) { return (rows + each - 1) / each; }

// Rows of a piece where the members share `rows` of such a weight.
inline int64_t piece_rows(const Step& step, const WeightRef& weight, int64_t rows) {
  if (step.batch.phase == Phase::kPrompt) return step.kernels.prompt_rows;
  const int64_t fair = rows / (step.members * kPiecesPerMember);
  const int64_t most = std::min(kPieceBytes / weight.row_bytes(), fair);
  return std::clamp(most / kRowMultiple * kRowMultiple, kRowMultiple, kMaxPieceRows);
}
inline int64_t piece_rows(const Step& step, const WeightRef& weight) {
  return piece_rows(step, weight, weight.rows);
}

}  // namespace ingot
