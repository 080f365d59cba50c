#include "executor/linear_op.h"

#include <algorithm>

#include "executor/pieces.h"

namespace ingot {
namespace {

// Bias and scale of rows [begin, end); out[0] is row begin's.
void add_bias(const LinearPart& part, int64_t begin, int64_t end, float* out) {
  if (part.bias)
    for (int64_t r = begin; r < end; ++r) out[r - begin] += part.bias[r];
  if (part.scale != 1.0f)
    for (int64_t r = begin; r < end; ++r) out[r - begin] *= part.scale;
}

}  // namespace

LinearOp::Buffers::Buffers(const KernelTable& kernels, int64_t members, int64_t max_tokens)
    : kernels(kernels),
      members(members),
      max_tokens(round_up(max_tokens, KernelTable::kColumnGroup)) {}

void LinearOp::Buffers::make_room(int64_t wanted) {
  if (wanted <= width) return;
  width = wanted;
  quantized_stride = kernels.quantized_bytes(width);
  kernel_scratch = kernels.scratch_bytes(width);
  normed.resize((members + max_tokens) * width);
  quantized = AlignedBytes((members + max_tokens) * quantized_stride);
  const int64_t results =
      std::max(kernels.prompt_rows * max_tokens, kMaxPieceRows * kMaxGenerationTokens);
  member_scratch =
      AlignedBytes::round_up(kernel_scratch + 2 * results * static_cast<int64_t>(sizeof(float)));
  scratch = AlignedBytes(members * member_scratch);
}

// Normalizes and quantizes columns [begin, end).
void LinearOp::prepare(const Step& step, int64_t begin, int64_t end, float* normed,
                       uint8_t* quantized, int64_t room) const {
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
  }
}

void LinearOp::run(const Step& step, int member) {
  const int64_t width = spec_.source.width, columns = step.rows(spec_.source);
  float* normed = buffers_.normed.data();
  uint8_t* quantized = buffers_.quantized.data();
  int64_t room = round_up(columns, KernelTable::kColumnGroup);
  if (step.batch.phase == Phase::kGeneration && columns == 1) {
    // Everyone prepares the one column for itself: cheaper than meeting for it.
    normed += (buffers_.max_tokens + member) * buffers_.width;
    quantized += (buffers_.max_tokens + member) * buffers_.quantized_stride;
    room = 1;
    prepare(step, 0, 1, normed, quantized, room);
  } else {
    // Neighbours share cache lines in a prompt's tiles, so a group goes to one member.
    const int64_t group = step.batch.phase == Phase::kPrompt ? KernelTable::kColumnGroup : 1;
    for (int64_t g; (g = columns_.claim(count_pieces(columns, group))) >= 0;)
      prepare(step, g * group, std::min(columns, (g + 1) * group), normed, quantized, room);
    step.barrier.wait();
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

  if (spec_.gate) {
    const int64_t rows = spec_.parts[0].weight.rows, each = piece_rows(step, spec_.parts[0].weight);
    for (int64_t piece; (piece = rows_.claim(count_pieces(rows, each), member)) >= 0;)
      run_gated(step, input, piece * each, std::min(rows, (piece + 1) * each), scratch);
    return;
  }
  int64_t pieces = 0;
  for (const LinearPart& part : spec_.parts)
    pieces += count_pieces(part.weight.rows, piece_rows(step, part.weight));
  for (int64_t piece; (piece = rows_.claim(pieces, member)) >= 0;) {
    const LinearPart* part = spec_.parts.data();
    int64_t index = piece, each = piece_rows(step, part->weight);
    for (int64_t n; index >= (n = count_pieces(part->weight.rows, each));) {
      index -= n;
      ++part;
      each = piece_rows(step, part->weight);
    }
    run_rows(step, *part, input, index * each, std::min(part->weight.rows, (index + 1) * each),
             scratch);
  }
}

void LinearOp::run_rows(const Step& step, const LinearPart& part, const LinearInput& input,
                        int64_t begin, int64_t end, uint8_t* scratch) const {
  const bool prompt = step.batch.phase == Phase::kPrompt;
  const uint32_t type = static_cast<uint32_t>(part.weight.type);
  const auto kernel = prompt ? step.kernels.prompt[type] : step.kernels.generate[type];
  kernel(part.weight.data, part.weight.row_bytes(), input, begin, end, step.row(part.out, 0),
         part.out.width, scratch);
  if (!part.bias && part.scale == 1.0f && !part.residual) return;
  for (int64_t c = 0; c < input.columns; ++c) {
    float* out = step.row(part.out, c);
    add_bias(part, begin, end, out + begin);
    if (part.residual) {
      const float* residual = step.row(*part.residual, c);
      for (int64_t r = begin; r < end; ++r) out[r] += residual[r];
    }
  }
}

void LinearOp::run_gated(const Step& step, const LinearInput& input, int64_t begin, int64_t end,
                         uint8_t* scratch) const {
  const bool prompt = step.batch.phase == Phase::kPrompt;
  const int64_t rows = end - begin;
  float* results[2];
  results[0] = reinterpret_cast<float*>(scratch + buffers_.kernel_scratch);
  results[1] = results[0] + rows * input.columns;
  for (size_t p = 0; p < spec_.parts.size(); ++p) {
    const LinearPart& part = spec_.parts[p];
    const uint32_t type = static_cast<uint32_t>(part.weight.type);
    const auto kernel = prompt ? step.kernels.prompt[type] : step.kernels.generate[type];
    // The kernel writes out[c * stride + r] for r from begin: shift so that it fills results.
    kernel(part.weight.data, part.weight.row_bytes(), input, begin, end, results[p] - begin, rows,
           scratch);
    for (int64_t c = 0; c < input.columns; ++c) add_bias(part, begin, end, results[p] + c * rows);
  }
  for (int64_t c = 0; c < input.columns; ++c)
    step.kernels.activate(*spec_.gate, results[0] + c * rows,
                          spec_.parts.size() == 2 ? results[1] + c * rows : nullptr, rows,
                          step.row(spec_.parts[0].out, c) + begin);
}

}  // namespace ingot
