// How a product is cut into pieces of work: by rows of the weight and, in a prompt, by columns too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "executor/ops.h"
#include "executor/weight_copy.h"

namespace ingot {

// Pieces of a generation's work: enough bytes to stream, few enough that the members finish
// together, in rows that the kernels take at once.
inline constexpr int64_t kPieceBytes = 192 << 10;
inline constexpr int64_t kRowMultiple = 48;
inline constexpr int64_t kMaxPieceRows = 768;  // the scratch of gated results holds these
inline constexpr int64_t kPiecesPerMember = 4;
inline constexpr int64_t kPromptPiecesPerMember = 2;  // at least, if columns are divided
inline constexpr int64_t kLeastPieceColumns = 64;  // fewer cost more to unpack for than to multiply

inline int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

inline int64_t count_pieces(int64_t rows, int64_t each) { return (rows + each - 1) / each; }

// Rows that no kernel of a generation divides: a multiple of those of rows_at_once(), whether a
// copy is there or not. Several columns take whole groups of strips.
inline int64_t row_multiple(const Step& step, const WeightRef& weight, int64_t columns) {
  const bool bytes =
      step.kernels.generate_kind[static_cast<uint32_t>(weight.type)] == InputKind::kBytes;
  return bytes && columns <= kStripRows / 2 ? kStripRows : kRowMultiple;
}

// Rows of a piece where the members share `rows` of such a weight.
inline int64_t piece_rows(const Step& step, const WeightRef& weight, int64_t rows,
                          int64_t multiple = kRowMultiple) {
  if (step.batch.phase == Phase::kPrompt) return step.kernels.prompt_rows;
  const int64_t fair = rows / (step.members * kPiecesPerMember);
  const int64_t most = std::min(kPieceBytes / weight.row_bytes(), fair);
  return std::clamp(most / multiple * multiple, multiple, kMaxPieceRows);
}

// Columns of a piece of a prompt whose rows make so many pieces. A piece unpacks its rows once for
// all of its columns, so these are divided only if there are too few rows for the members.
inline int64_t piece_columns(const Step& step, int64_t row_pieces, int64_t columns) {
  if (step.batch.phase != Phase::kPrompt) return std::max<int64_t>(columns, 1);
  const int64_t wanted = step.members > 1 ? step.members * kPromptPiecesPerMember : 1;
  const int64_t groups = count_pieces(wanted, row_pieces);
  const int64_t fair = round_up(count_pieces(columns, groups), KernelTable::kColumnGroup);
  return std::max(fair, kLeastPieceColumns);
}

}  // namespace ingot
