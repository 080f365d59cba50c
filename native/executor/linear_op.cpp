#include "executor/linear_op.h"

#include <algorithm>

#include "executor/pieces.h"
#include "executor/weight_copy.h"

namespace ingot {
namespace {

constexpr int64_t kDownRows = 8;  // of a piece of work; ranks are small

// Bias and scale of rows [begin, end); out[0] is row begin's.
void add_bias(const LinearPart& part, int64_t begin, int64_t end, float* out) {
  if (part.bias)
    for (int64_t r = begin; r < end; ++r) out[r - begin] += part.bias[r];
  if (part.scale != 1.0f)
    for (int64_t r = begin; r < end; ++r) out[r - begin] *= part.scale;
}

// Columns [first, first + count) of the inputs of a step; `first` begins a group of a prompt's.
LinearInput columns_of(const Step& step, const LinearInput& input, int64_t first, int64_t count) {
  LinearInput some = input;
  some.columns = count;
  if (first > 0) {
    some.values += first * input.value_stride;
    some.quantized += step.kernels.prompt_offset(input.width, first);
    some.bytes += step.kernels.quantized_stride(first);
  }
  return some;
}

}  // namespace

LinearOp::Buffers::Buffers(const KernelTable& kernels, int64_t members, int64_t max_tokens)
    : kernels(kernels),
      members(members),
      max_tokens(round_up(max_tokens, KernelTable::kColumnGroup)),
      soon(members) {}

void LinearOp::Buffers::make_room(int64_t wanted) {
  if (wanted <= width) return;
  width = wanted;
  quantized_stride = kernels.quantized_bytes(width);
  kernel_scratch = kernels.scratch_bytes(width);
  normed.resize((members + max_tokens) * width);
  quantized = AlignedBytes((members + max_tokens) * quantized_stride);
  member_scratch =
      AlignedBytes::round_up(kernel_scratch + 2 * results() * static_cast<int64_t>(sizeof(float)));
  scratch = AlignedBytes(members * member_scratch);
}

int64_t LinearOp::Buffers::results() const {
  return std::max(kernels.prompt_rows * max_tokens, kMaxPieceRows * kMaxGenerationTokens);
}

// All operations of the program are there: the width is the largest.
void LinearOp::Buffers::make_adapter_room(int64_t wanted_parts, int64_t wanted_rank) {
  parts = std::max(parts, wanted_parts);
  rank = std::max(rank, wanted_rank);
  sorted.resize(max_tokens * width);
  low.resize(parts * max_tokens * rank);
}

void LinearOp::adapt(int64_t part, int64_t slot, std::optional<LowRank> weights) {
  if (weights) buffers_.make_adapter_room(parts(), weights->rank);
  adapters_[part].set(slot, weights);
}

// The rows of a step that an adapter of one of the parts adds to; null: none.
const AdaptedRows* LinearOp::adapted_rows(const Step& step) const {
  if (!step.batch.adapted) return nullptr;
  const AdaptedRows& rows = step.batch.adapted->of(spec_.source);
  for (const AdaptedRows::Group& group : rows.groups())
    for (const LowRankSlots& slots : adapters_)
      if (slots.at(group.slot)) return &rows;
  return nullptr;
}

// Normalizes and quantizes columns [begin, end); keeps those that adapters read in their order.
void LinearOp::prepare(const Step& step, int64_t begin, int64_t end, float* normed,
                       uint8_t* quantized, int64_t room, const AdaptedRows* adapted) const {
  const bool prompt = step.batch.phase == Phase::kPrompt;
  const KernelTable& kernels = step.kernels;
  const int64_t width = spec_.source.width;
  for (int64_t c = begin; c < end; ++c) {
    const float* x = step.row(spec_.source, c);
    if (spec_.norm) {
      spec_.norm->apply(kernels, x, width, normed + c * width);
      x = normed + c * width;
    }
    quantizer_.quantize(kernels, prompt, x, width, quantized, room, c);
    if (adapted && adapted->place(c) >= 0)
      std::copy_n(x, width, buffers_.sorted.data() + adapted->place(c) * width);
  }
}

// Pieces of work of all first products of adapters.
int64_t LinearOp::count_down(const AdaptedRows& adapted) const {
  int64_t pieces = 0;
  for (const AdaptedRows::Group& group : adapted.groups())
    for (const LowRankSlots& slots : adapters_)
      if (const LowRank* weights = slots.at(group.slot))
        pieces += count_pieces(weights->down.rows, kDownRows);
  return pieces;
}

// One of these pieces.
LinearOp::Down LinearOp::find_down(const AdaptedRows& adapted, int64_t piece) const {
  for (const AdaptedRows::Group& group : adapted.groups())
    for (int64_t p = 0; p < parts(); ++p) {
      const LowRank* weights = adapters_[p].at(group.slot);
      if (!weights) continue;
      const int64_t rows = weights->down.rows, pieces = count_pieces(rows, kDownRows);
      if (piece < pieces)
        return {weights, &group, p, piece * kDownRows, std::min(rows, (piece + 1) * kDownRows)};
      piece -= pieces;
    }
  return {};
}

// low = scale * (x @ down.T), for all rows of each adapter and every part; shared by the members.
void LinearOp::run_down(const Step& step, const AdaptedRows& adapted, const LinearInput& input,
                        int member) {
  const int64_t pieces = count_down(adapted);
  for (int64_t piece; (piece = low_.claim(pieces, member)) >= 0;) {
    const Down down = find_down(adapted, piece);
    LinearInput rows = input;
    rows.values += down.group->first * input.value_stride;
    rows.columns = down.group->count;
    float* low = buffers_.low_row(down.part, down.group->first);
    multiply_rows(step, down.weights->down, rows, down.begin, down.end, low, buffers_.rank,
                  nullptr);
    for (int64_t i = 0; i < down.group->count; ++i) {
      const float scale = down.weights->scale * adapted.use(down.group->first + i).scale;
      for (int64_t r = down.begin; r < down.end; ++r) low[i * buffers_.rank + r] *= scale;
    }
  }
}

// Notes what a member will ask for while it multiplies its share of `groups` groups of rows: what
// its own share of run_down() of the next operation reads.
void LinearOp::expect_down(const Step& step, int member, int64_t groups) const {
  Buffers::Soon& soon = buffers_.soon[member];
  soon.down.clear();
  if (next_) {
    const AdaptedRows& adapted = step.batch.adapted->of(next_->spec_.source);
    const auto [begin, end] = Shares::own(next_->count_down(adapted), member, step.members);
    for (int64_t piece = begin; piece < end; ++piece) {
      const Down down = next_->find_down(adapted, piece);
      soon.down.add_down(*down.weights, down.begin, down.end);
    }
  }
  soon.down_lines = count_pieces(soon.down.lines() * step.members, groups);
}

// Rows [begin, end) of a part times every column. In a generation, what adapters read for them, and
// what they read in the next operation, is asked for between groups of rows.
void LinearOp::multiply(const Step& step, int64_t part, const LinearInput& input, int64_t begin,
                        int64_t end, float* out, int64_t stride, uint8_t* scratch,
                        int member) const {
  const WeightRef& weight = spec_.parts[part].weight;
  if (!step.batch.adapted)
    return multiply_rows(step, weight, input, begin, end, out, stride, scratch);
  Buffers::Soon& soon = buffers_.soon[member];
  soon.up.clear();
  for (const AdaptedRows::Group& group : step.batch.adapted->of(spec_.source).groups())
    if (const LowRank* weights = adapters_[part].at(group.slot))
      soon.up.add_up(*weights, begin, end);
  const int64_t each =
      step.batch.phase == Phase::kPrompt ? end - begin : rows_at_once(step, weight, input.columns);
  const int64_t lines = count_pieces(soon.up.lines(), count_pieces(end - begin, each));
  for (int64_t row = begin; row < end; row += each) {
    soon.up.request(lines);
    soon.down.request(soon.down_lines);
    multiply_rows(step, weight, input, row, std::min(end, row + each), out, stride, scratch);
  }
}

// Adds what adapters give for rows [begin, end) of a part to every column of out, which begin with
// row `begin`.
void LinearOp::add_adapters(const Step& step, int64_t part, int64_t begin, int64_t end, float* out,
                            int64_t stride) const {
  const AdaptedRows& adapted = step.batch.adapted->of(spec_.source);
  for (const AdaptedRows::Group& group : adapted.groups()) {
    const LowRank* weights = adapters_[part].at(group.slot);
    if (!weights) continue;
    const int64_t last = group.first + group.count;
    for (int64_t place = group.first, count; place < last; place += count) {
      const int64_t row = adapted.row(place);
      count = 1;  // columns beside each other
      while (place + count < last && adapted.row(place + count) == row + count) ++count;
      weights->add(step.kernels, begin, end, buffers_.low_row(part, place), buffers_.rank, count,
                   out + row * stride, stride);
    }
  }
}

void LinearOp::run(const Step& step, int member) {
  const int64_t width = spec_.source.width, columns = step.rows(spec_.source);
  float* normed = buffers_.normed.data();
  uint8_t* quantized = buffers_.quantized.data();
  int64_t room = round_up(columns, KernelTable::kColumnGroup);
  const AdaptedRows* adapted = adapted_rows(step);
  bool sorted = false;
  if (step.batch.phase == Phase::kGeneration && columns == 1) {
    // Everyone prepares the one column for itself: cheaper than meeting for it.
    normed += (buffers_.max_tokens + member) * buffers_.width;
    quantized += (buffers_.max_tokens + member) * buffers_.quantized_stride;
    room = 1;
    prepare(step, 0, 1, normed, quantized, room, nullptr);
  } else {
    // Neighbours share cache lines in a prompt's tiles, so a group goes to one member.
    const int64_t group = step.batch.phase == Phase::kPrompt ? KernelTable::kColumnGroup : 1;
    for (int64_t g; (g = columns_.claim(count_pieces(columns, group))) >= 0;)
      prepare(step, g * group, std::min(columns, (g + 1) * group), normed, quantized, room,
              adapted);
    step.barrier.wait();
    sorted = true;
  }
  const LinearInput input{
      .values = spec_.norm ? normed : step.row(spec_.source, 0),
      .value_stride = width,
      .quantized = quantized,
      .bytes = quantized + step.kernels.bytes_begin(room, width),
      .quantized_stride = step.kernels.quantized_stride(room),
      .columns = columns,
      .width = width,
  };
  uint8_t* scratch = buffers_.scratch.data() + member * buffers_.member_scratch;
  if (adapted) {
    LinearInput inputs = input;
    if (sorted) inputs.values = buffers_.sorted.data();
    run_down(step, *adapted, inputs, member);
    step.barrier.wait();
  }

  if (step.batch.adapted) {
    int64_t groups = 0;
    for (const LinearPart& part : spec_.parts)
      groups += count_pieces(part.weight.rows, rows_at_once(step, part.weight, columns));
    expect_down(step, member, groups);
  }

  // Rows of all parts, or of gate and up together; each of these for every group of columns.
  const auto rows_of_piece = [&](const LinearPart& part) {
    return piece_rows(step, part.weight, part.weight.rows,
                      row_multiple(step, part.weight, columns));
  };
  int64_t row_pieces = 0;
  for (const LinearPart& part : spec_.parts) {
    row_pieces += count_pieces(part.weight.rows, rows_of_piece(part));
    if (spec_.gate) break;
  }
  const int64_t piece_width =
      step.batch.adapted ? std::max<int64_t>(columns, 1) : piece_columns(step, row_pieces, columns);
  const int64_t pieces = row_pieces * count_pieces(columns, piece_width);
  for (int64_t piece; (piece = rows_.claim(pieces, member)) >= 0;) {
    const int64_t first = piece / row_pieces * piece_width;
    const LinearInput some = columns_of(step, input, first, std::min(piece_width, columns - first));
    const LinearPart* part = spec_.parts.data();
    int64_t index = piece % row_pieces, each = rows_of_piece(*part);
    for (int64_t n; index >= (n = count_pieces(part->weight.rows, each));) {
      index -= n;
      each = rows_of_piece(*++part);
    }
    const int64_t begin = index * each, end = std::min(part->weight.rows, begin + each);
    if (spec_.gate)
      run_gated(step, some, first, begin, end, scratch, member);
    else
      run_rows(step, part - spec_.parts.data(), some, first, begin, end, scratch, member);
  }
}

void LinearOp::run_rows(const Step& step, int64_t number, const LinearInput& input, int64_t first,
                        int64_t begin, int64_t end, uint8_t* scratch, int member) const {
  const LinearPart& part = spec_.parts[number];
  multiply(step, number, input, begin, end, step.row(part.out, first), part.out.width, scratch,
           member);
  if (step.batch.adapted)
    add_adapters(step, number, begin, end, step.row(part.out, 0) + begin, part.out.width);
  if (!part.bias && part.scale == 1.0f && !part.residual) return;
  for (int64_t c = first; c < first + input.columns; ++c) {
    float* out = step.row(part.out, c);
    add_bias(part, begin, end, out + begin);
    if (part.residual) {
      const float* residual = step.row(*part.residual, c);
      for (int64_t r = begin; r < end; ++r) out[r] += residual[r];
    }
  }
}

void LinearOp::run_gated(const Step& step, const LinearInput& input, int64_t first, int64_t begin,
                         int64_t end, uint8_t* scratch, int member) const {
  const int64_t rows = end - begin;
  float* results[2];
  results[0] = reinterpret_cast<float*>(scratch + buffers_.kernel_scratch);
  results[1] = results[0] + rows * input.columns;
  for (size_t p = 0; p < spec_.parts.size(); ++p) {
    const LinearPart& part = spec_.parts[p];
    // What is written is out[c * stride + r] for r from begin: shift so that it fills results.
    multiply(step, p, input, begin, end, results[p] - begin, rows, scratch, member);
    if (step.batch.adapted) add_adapters(step, p, begin, end, results[p], rows);
    for (int64_t c = 0; c < input.columns; ++c) add_bias(part, begin, end, results[p] + c * rows);
  }
  for (int64_t c = 0; c < input.columns; ++c)
    step.kernels.activate(*spec_.gate, results[0] + c * rows,
                          spec_.parts.size() == 2 ? results[1] + c * rows : nullptr, rows,
                          step.row(spec_.parts[0].out, first + c) + begin);
}

}  // namespace ingot
