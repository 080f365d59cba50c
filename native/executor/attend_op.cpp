// Attention in two ways of sharing the work: a prompt's tokens go by tiles (each tile and
// key head is one piece, or several where a key head has more query heads than a tile has
// rows), a generation's single tokens by parts of their past, which are joined afterwards.
#include <algorithm>
#include <cmath>

#include "executor/ops.h"

namespace ingot {

AttendOp::Buffers::Buffers(int64_t members, int64_t max_tokens, int64_t max_positions)
    : members(members),
      max_tokens(max_tokens),
      max_parts((max_positions + kPartPositions - 1) / kPartPositions) {}

void AttendOp::Buffers::make_room(int64_t heads, int64_t head_size) {
  const auto grow = [](auto& buffer, int64_t size) {
    if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
  };
  scratch_floats =
      std::max(scratch_floats, attend_scratch_floats(head_size) + kTileRows * head_size);
  grow(scratch, scratch_floats * members);
  grow(part_rows, max_tokens * heads * max_parts);
  grow(part_mixes, max_tokens * heads * max_parts * head_size);
}

AttendOp::AttendOp(Spec spec, Buffers& buffers) : spec_(std::move(spec)), buffers_(buffers) {
  buffers_.make_room(spec_.heads, spec_.cache.head_size);
}

AttendOp::Tile AttendOp::tile_of(const SequenceRun* run, int64_t first, int64_t tokens,
                                 int64_t index) const {
  const int64_t repeat = spec_.heads / spec_.kv_heads, of_key = shares() / spec_.kv_heads;
  const int64_t begin = index % of_key * share(), key_head = index / of_key;
  return {
      run, first, tokens, key_head, key_head * repeat + begin, std::min(share(), repeat - begin)};
}

void AttendOp::attend_part(const Step& step, const Tile& tile, int64_t begin, int64_t end,
                           AttendRow* rows, float* mix, float* scratch) {
  const int64_t size = spec_.cache.head_size;
  const float *query[kTileRows], *chosen[kTileRows];
  uint32_t masks[kTileRows];
  for (int64_t t = 0; t < tile.tokens; ++t) {
    const int64_t token = tile.run->first + tile.first + t;
    for (int64_t r = 0; r < tile.heads; ++r)
      query[t * tile.heads + r] = step.row(spec_.query, token) + (tile.first_head + r) * size;
    if (spec_.chosen) chosen[t] = step.row(*spec_.chosen, token);
  }
  step.kernels.attend({
      .query = query,
      .positions = step.batch.positions + tile.run->first + tile.first,
      .tokens = static_cast<int>(tile.tokens),
      .repeat = static_cast<int>(tile.heads),
      .head_size = size,
      .value_size = spec_.cache.value_size(),
      .value_in_key = spec_.cache.shared_value > 0,
      .pool = spec_.cache.pool,
      .block_bytes = spec_.cache.block_bytes,
      .table = tile.run->tables[spec_.cache.group],
      .key_offset = spec_.cache.key_offset(tile.key_head),
      .value_offset = spec_.cache.value_offset(tile.key_head),
      .type = spec_.cache.type,
      .scale = spec_.scale,
      .softcap = spec_.softcap,
      .window = spec_.window,
      .chunked = spec_.chunked,
      .causal = spec_.causal && spec_.seen != SeenPart::ENCODED,
      .oldest = spec_.seen == SeenPart::DECODED ? tile.run->encoded : 0,
      .chosen = spec_.chosen ? chosen : nullptr,
      .choices = spec_.chosen ? spec_.chosen->width : 0,
      .masks = masks,
      .bias = spec_.bias.empty()
                  ? nullptr
                  : spec_.bias.data() + 2 * (spec_.reach + kKvBlockTokens) * tile.first_head,
      .reach = spec_.reach,
      .slopes = spec_.slopes ? spec_.slopes + tile.first_head : nullptr,
      .begin = begin,
      .end = end,
      .row = rows,
      .mix = mix,
      .scratch = scratch,
  });
}

namespace {

// The first position, rounded down to a block, that a token at `position` sees.
int64_t first_seen(int64_t position, int64_t window, bool chunked) {
  return oldest_seen(position, window, chunked) / kKvBlockTokens * kKvBlockTokens;
}

}  // namespace

AttendOp::Range AttendOp::seen_by(const SequenceRun& run, int64_t position) const {
  switch (spec_.seen) {
    case SeenPart::ENCODED:
      return {0, run.encoded};
    case SeenPart::DECODED:
      return {run.encoded / kKvBlockTokens * kKvBlockTokens, position + 1};
    default:
      return {first_seen(position, spec_.window, spec_.chunked), position + 1};
  }
}

void AttendOp::run(const Step& step, int member) {
  if (step.batch.phase == Phase::kPrompt || !spec_.causal) {
    run_tiles(step, member);
  } else {
    run_parts(step, member);
  }
}

void AttendOp::run_tiles(const Step& step, int member) {
  const int64_t size = spec_.cache.value_size();
  const int64_t tile_tokens = std::max<int64_t>(1, kTileRows / share());
  float* scratch = buffers_.scratch.data() + buffers_.scratch_floats * member;
  float* mix = scratch + attend_scratch_floats(spec_.cache.head_size);
  AttendRow rows[kTileRows];
  int64_t tiles = 0;
  for (int32_t s = 0; s < step.batch.runs; ++s) tiles += tiles_of(step.batch.run[s]);
  for (int64_t piece; (piece = walk_.claim(tiles * shares())) >= 0;) {
    // The last tiles look back farthest: they come first, so that no member ends up
    // alone with one.
    int64_t index = tiles - 1 - piece / shares();
    const SequenceRun* run = step.batch.run;
    for (int64_t in_run; index >= (in_run = tiles_of(*run)); ++run) index -= in_run;
    const Tile tile =
        tile_of(run, index * tile_tokens, std::min(tile_tokens, run->count - index * tile_tokens),
                piece % shares());
    const int32_t* position = step.batch.positions + run->first;
    const int64_t last = position[tile.first + tile.tokens - 1], whole = position[run->count - 1];
    int64_t begin = seen_by(*run, position[tile.first]).begin, end = seen_by(*run, last).end;
    if (!spec_.causal) {  // all of the sequence, or half a window on either side
      const int64_t half = spec_.window > 0 ? spec_.window / 2 : whole;
      begin = first_seen(position[tile.first], half + 1, false);
      end = std::min(whole, last + half) + 1;
    }
    attend_part(step, tile, begin, end, rows, mix, scratch);
    for (int64_t t = 0; t < tile.tokens; ++t)
      for (int64_t r = 0; r < tile.heads; ++r) {
        const int64_t i = t * tile.heads + r, head = tile.first_head + r;
        step.kernels.join_parts(rows + i, mix + i * size, 1, 0, 0, size,
                                spec_.sinks ? spec_.sinks + head : nullptr,
                                step.row(spec_.out, run->first + tile.first + t) + head * size);
      }
  }
}

void AttendOp::run_parts(const Step& step, int member) {
  const int64_t size = spec_.cache.value_size();
  float* scratch = buffers_.scratch.data() + buffers_.scratch_floats * member;
  float* mix = scratch + attend_scratch_floats(spec_.cache.head_size);
  AttendRow rows[kTileRows];
  const int64_t tokens = step.batch.tokens;
  int64_t deepest = 0;
  for (int32_t s = 0; s < step.batch.runs; ++s) {
    const SequenceRun& run = step.batch.run[s];
    deepest = std::max(deepest, seen_by(run, step.batch.positions[run.first + run.count - 1]).end);
  }
  const int64_t parts = (deepest + kPartPositions - 1) / kPartPositions;
  for (int64_t piece; (piece = walk_.claim(tokens * shares() * parts)) >= 0;) {
    const int64_t part = piece % parts, token = piece / parts / shares();
    const SequenceRun* run = step.batch.run;
    while (token >= run->first + run->count) ++run;
    const Range seen = seen_by(*run, step.batch.positions[token]);
    const int64_t begin = std::max(part * kPartPositions, seen.begin);
    const int64_t end = std::min((part + 1) * kPartPositions, seen.end);
    const Tile tile = tile_of(run, token - run->first, 1, piece / parts % shares());
    if (begin < end) attend_part(step, tile, begin, end, rows, mix, scratch);
    for (int64_t r = 0; r < tile.heads; ++r) {
      const int64_t slot = (token * spec_.heads + tile.first_head + r) * buffers_.max_parts + part;
      buffers_.part_rows[slot] = begin < end ? rows[r] : AttendRow{-INFINITY, 0.0f};
      if (begin < end) std::copy_n(mix + r * size, size, buffers_.part_mixes.data() + slot * size);
    }
  }
  step.barrier.wait();
  for (int64_t piece; (piece = join_.claim(tokens * spec_.heads)) >= 0;) {
    const int64_t token = piece / spec_.heads, head = piece % spec_.heads;
    const SequenceRun* run = step.batch.run;
    while (token >= run->first + run->count) ++run;
    const int64_t seen = seen_by(*run, step.batch.positions[token]).end;
    const int64_t parts_of_token = (seen + kPartPositions - 1) / kPartPositions;
    step.kernels.join_parts(
        buffers_.part_rows.data() + piece * buffers_.max_parts,
        buffers_.part_mixes.data() + piece * buffers_.max_parts * size, parts_of_token, 1, size,
        size, spec_.sinks ? spec_.sinks + head : nullptr, step.row(spec_.out, token) + head * size);
  }
}

}  // namespace ingot
