#include "executor/expanded_attention.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr int64_t kPanelRows = 16;  // of a matrix that are decoded before they are turned

}  // namespace

void ExpandedAttention::Buffers::make_room(const Spec& spec) {
  const int64_t head = spec.rotary() + spec.key_size(), value = spec.value_room();
  const int64_t maps = spec.latent() * (spec.key_size() + value + kPanelRows);
  const int64_t block = kKvBlockTokens * (spec.cache.head_size + head + value);
  floats = std::max(floats, maps + block + max_tokens * (head + value));
  memory.resize(std::max<size_t>(memory.size(), floats * members));
  queries.resize(max_tokens * members);
  rows.resize(max_tokens * members);
}

ExpandedAttention::ExpandedAttention(Spec spec, Buffers& buffers)
    : spec_(std::move(spec)), buffers_(buffers) {
  buffers_.make_room(spec_);
}

void ExpandedAttention::run(const Step& step, int member) {
  int64_t expanded = 0;
  for (int32_t s = 0; s < step.batch.runs; ++s) expanded += step.batch.run[s].expanded;
  for (int64_t piece; (piece = queue_.claim(expanded * spec_.heads)) >= 0;) {
    const SequenceRun* run = step.batch.run;
    for (int64_t before = piece / spec_.heads; !run->expanded || before-- > 0;) ++run;
    run_head(step, *run, piece % spec_.heads, member);
  }
}

// out[column][row] of a head's matrix, `width` elements of a column; those after its rows are 0.
void ExpandedAttention::decode_turned(const Step& step, const HeadMatrixRef& matrix, int64_t head,
                                      int64_t width, float* panel, float* out) const {
  const WeightRef& weight = matrix.weight;
  const TypeTraits& traits = *find_type(static_cast<uint32_t>(weight.type));
  const int64_t begin = head * (weight.rows / spec_.heads) + matrix.first;
  for (int64_t first = 0; first < matrix.rows; first += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, matrix.rows - first);
    step.kernels.decode[traits.id](weight.data + (begin + first) * weight.row_bytes(), panel,
                                   rows * (weight.columns / traits.block_weights));
    for (int64_t c = 0; c < weight.columns; ++c)
      for (int64_t r = 0; r < rows; ++r) out[c * width + first + r] = panel[r * weight.columns + c];
  }
  for (int64_t c = 0; c < weight.columns && matrix.rows < width; ++c)
    std::fill_n(out + c * width + matrix.rows, width - matrix.rows, 0.0f);
}

void ExpandedAttention::run_head(const Step& step, const SequenceRun& run, int64_t head,
                                 int member) {
  const int64_t latent = spec_.latent(), own = spec_.key_size(), size = spec_.rotary() + own;
  const int64_t room = spec_.value_room();
  float* key_map = buffers_.memory.data() + buffers_.floats * member;  // [latent][own]
  float* value_map = key_map + latent * own;                           // [latent][room]
  float* panel = value_map + latent * room;
  float* block = panel + kPanelRows * latent;
  float* query = block + kKvBlockTokens * (spec_.cache.head_size + size + room);
  float* mix = query + run.count * size;
  const float** queries = buffers_.queries.data() + buffers_.max_tokens * member;
  AttendRow* rows = buffers_.rows.data() + buffers_.max_tokens * member;
  if (spec_.latent_rows) {
    const WeightRef& weight = spec_.key.weight;
    const TypeTraits& traits = *find_type(static_cast<uint32_t>(weight.type));
    const int64_t begin = head * (weight.rows / spec_.heads) + spec_.key.first;
    step.kernels.decode[traits.id](weight.data + begin * weight.row_bytes(), key_map,
                                   latent * (own / traits.block_weights));
  } else {
    decode_turned(step, spec_.key, head, own, panel, key_map);
  }
  decode_turned(step, spec_.value, head, room, panel, value_map);
  for (int64_t t = 0; t < run.count; ++t) {  // rows of all heads are far from each other
    const float* from = step.row(spec_.query, run.first + t) + head * spec_.cache.head_size;
    queries[t] = std::copy_n(from, size, query + t * size) - size;
  }
  const int32_t* positions = step.batch.positions + run.first;
  step.kernels.attend_expanded({
      .attend =
          {
              .query = queries,
              .positions = positions,
              .tokens = run.count,
              .repeat = 1,
              .head_size = size,
              .value_size = room,
              .value_in_key = false,
              .pool = spec_.cache.pool,
              .block_bytes = spec_.cache.block_bytes,
              .table = run.tables[spec_.cache.group],
              .key_offset = spec_.cache.key_offset(0),
              .value_offset = 0,
              .type = spec_.cache.type,
              .scale = spec_.scale,
              .softcap = spec_.softcap,
              .window = 0,
              .chunked = false,
              .causal = true,
              .oldest = 0,
              .chosen = nullptr,
              .choices = 0,
              .masks = nullptr,
              .bias = nullptr,
              .reach = 0,
              .slopes = nullptr,
              .begin = 0,
              .end = positions[run.count - 1] + 1,
              .row = rows,
              .mix = mix,
              .scratch = block,
          },
      .latent = latent,
      .rotary = spec_.rotary(),
      .key_map = key_map,
      .value_map = value_map,
  });
  for (int64_t t = 0; t < run.count; ++t)
    step.kernels.join_parts(rows + t, mix + t * room, 1, 0, 0, spec_.value.rows, nullptr,
                            step.row(spec_.out, run.first + t) + head * latent);
}

}  // namespace ingot
