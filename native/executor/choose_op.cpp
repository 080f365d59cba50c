#include "executor/choose_op.h"

#include <algorithm>
#include <array>
#include <bit>

namespace ingot {
namespace {

// Numbers in the order of their scores; zeros of both signs are one.
uint32_t rank_of(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The rank of which `most` scores are higher or equal, if equal ones count in order, and how many
// of those with this very rank are among them.
struct Edge {
  uint32_t rank;
  int64_t equal;
};

// Byte by byte from the highest: counts how many have each value, among those with the same bytes
// before.
Edge find_edge(const float* scores, int64_t count, int64_t most) {
  uint32_t rank = 0, known = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    std::array<int64_t, 256> counts{};
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t own = rank_of(scores[i]);
      if ((own & known) == rank) ++counts[own >> shift & 255];
    }
    uint32_t value = 255;
    for (; counts[value] < most; --value) most -= counts[value];
    rank |= value << shift;
    known |= 255u << shift;
  }
  return {rank, most};
}

}  // namespace

ChooseOp::Buffers::Buffers(int64_t members, int64_t max_positions)
    : members(members),
      positions((max_positions + kKvBlockTokens - 1) / kKvBlockTokens * kKvBlockTokens) {}

void ChooseOp::Buffers::make_room(int64_t head_size) {
  key_floats = std::max(key_floats, head_size * kKvBlockTokens);
  scores.resize(positions * members);
  keys.resize(std::max<size_t>(keys.size(), key_floats * members));
}

ChooseOp::ChooseOp(Spec spec, Buffers& buffers) : spec_(spec), buffers_(buffers) {
  buffers_.make_room(spec_.cache.head_size);
}

void ChooseOp::run(const Step& step, int member) {
  if (step.batch.phase == Phase::kPrompt)
    run_tokens(step, member);
  else
    run_parts(step, member);
}

int64_t ChooseOp::choosing(const Step& step, int64_t token) const {
  const int64_t seen = step.batch.positions[token] + 1;
  return seen > spec_.out.width ? seen : 0;
}

void ChooseOp::score(const Step& step, int64_t token, int64_t begin, int64_t end, int64_t slot,
                     int member) {
  const SequenceRun* run = step.batch.run;
  while (token >= run->first + run->count) ++run;
  step.kernels.score_positions({
      .query = step.row(spec_.query, token),
      .weights = step.row(spec_.weights, token),
      .heads = spec_.heads,
      .head_size = spec_.cache.head_size,
      .pool = spec_.cache.pool,
      .block_bytes = spec_.cache.block_bytes,
      .table = run->tables[spec_.cache.group],
      .key_offset = spec_.cache.key_offset(0),
      .type = spec_.cache.type,
      .begin = begin,
      .end = end,
      .scores = scores(slot) + begin,
      .scratch = buffers_.keys.data() + buffers_.key_floats * member,
  });
}

void ChooseOp::choose(const Step& step, int64_t token, int64_t slot) {
  const int64_t width = spec_.out.width, seen = choosing(step, token);
  float* out = step.row(spec_.out, token);
  if (!seen) {
    const int64_t all = step.batch.positions[token] + 1;
    for (int64_t i = 0; i < width; ++i) out[i] = i < all ? static_cast<float>(i) : -1.0f;
    return;
  }
  const float* scored = scores(slot);
  auto [edge, equal] = find_edge(scored, seen, width);
  for (int64_t i = 0; i < seen; ++i) {
    const uint32_t rank = rank_of(scored[i]);
    if (rank > edge || (rank == edge && equal-- > 0)) *out++ = static_cast<float>(i);
  }
}

void ChooseOp::run_tokens(const Step& step, int member) {
  const int64_t tokens = step.batch.tokens;
  for (int64_t piece; (piece = queue_.claim(tokens)) >= 0;) {
    const int64_t token = tokens - 1 - piece;  // the last ones look back farthest
    if (const int64_t seen = choosing(step, token)) score(step, token, 0, seen, member, member);
    choose(step, token, member);
  }
}

// As many tokens at a time as there are members: each is scored by all and chosen by one.
void ChooseOp::run_parts(const Step& step, int member) {
  const int64_t tokens = step.batch.tokens;
  for (int64_t first = 0; first < tokens; first += step.members) {
    const int64_t end = std::min<int64_t>(first + step.members, tokens);
    int64_t parts = 0;
    for (int64_t token = first; token < end; ++token) {
      const int64_t seen = choosing(step, token);
      for (int64_t begin = 0; begin < seen; begin += kPartPositions)
        if (parts++ % step.members == member)
          score(step, token, begin, std::min(begin + kPartPositions, seen), token - first, member);
    }
    if (parts) step.barrier.wait();
    if (first + member < end) choose(step, first + member, member);
    if (parts && end < tokens) step.barrier.wait();
  }
}

}  // namespace ingot
