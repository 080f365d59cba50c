#include "executor/head_ops.h"

#include <algorithm>

namespace ingot {

void HeadLinearOp::Buffers::make_room(int64_t columns) {
  panel_floats = std::max(panel_floats, kPanelRows * columns);
  if (static_cast<int64_t>(panels.size()) < panel_floats * members)
    panels.resize(panel_floats * members);
}

void HeadLinearOp::run(const Step& step, int member) {
  float* panel = buffers_.panels.data() + member * buffers_.panel_floats;
  for (int64_t head; (head = queue_.claim(spec_.heads)) >= 0;) run_head(step, head, panel);
}

int64_t HeadLinearOp::end_of_rows(const Step& step, int64_t begin, bool* expanded) const {
  const int64_t rows = step.rows(spec_.out);
  *expanded = false;
  if (!spec_.expandable || step.batch.phase != Phase::kPrompt) return rows;
  const auto is_expanded = [&](int64_t row) {
    const int32_t token = spec_.out.selected ? step.batch.output[row] : static_cast<int32_t>(row);
    const SequenceRun* run = step.batch.run;
    while (token >= run->first + run->count) ++run;
    return run->expanded;
  };
  *expanded = is_expanded(begin);
  int64_t end = begin + 1;
  while (end < rows && is_expanded(end) == *expanded) ++end;
  return end;
}

void HeadLinearOp::run_head(const Step& step, int64_t head, float* panel) const {
  const int64_t kept = spec_.kept(), inputs = spec_.inputs(), results = spec_.results();
  bool expanded;
  for (int64_t begin = 0, end; begin < step.rows(spec_.out); begin = end) {
    end = end_of_rows(step, begin, &expanded);
    for (int64_t row = begin; row < end; ++row) {
      const float* from = step.row(spec_.source, row) + head * (inputs + kept);
      float* to = step.row(spec_.out, row) + head * (kept + results);
      std::copy_n(from + inputs, kept, to);
      if (expanded) std::copy_n(from, std::min(inputs, results), to + kept);
    }
    if (!expanded) map_rows(step, head, begin, end, panel);
  }
}

void HeadLinearOp::map_rows(const Step& step, int64_t head, int64_t begin, int64_t end,
                            float* panel) const {
  const WeightRef& weight = spec_.weight;
  const TypeTraits& traits = *find_type(static_cast<uint32_t>(weight.type));
  const int64_t tokens = end - begin, kept = spec_.kept(), results = spec_.results();
  const float* x = step.row(spec_.source, begin) + head * (spec_.inputs() + kept);
  float* out = step.row(spec_.out, begin) + head * (kept + results) + kept;
  if (spec_.transposed)
    for (int64_t t = 0; t < tokens; ++t) std::fill_n(out + t * spec_.out.width, results, 0.0f);
  const int64_t of_head = weight.rows / spec_.heads;
  const int64_t row_blocks = weight.columns / traits.block_weights;
  for (int64_t first = 0; first < spec_.rows; first += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, spec_.rows - first);
    const int64_t row = head * of_head + spec_.first + first;
    step.kernels.decode[traits.id](weight.data + row * weight.row_bytes(), panel,
                                   rows * row_blocks);
    if (spec_.transposed)
      step.kernels.add_head_rows({panel, rows, weight.columns, x + first, spec_.source.width,
                                  tokens, out, spec_.out.width});
    else
      step.kernels.map_head({panel, rows, weight.columns, x, spec_.source.width, tokens,
                             out + first, spec_.out.width});
  }
}

void PickHeadsOp::run(const Step& step, int) {
  const int64_t from = spec_.source.width / spec_.heads, to = spec_.out.width / spec_.heads;
  for (int64_t t; (t = queue_.claim(step.rows(spec_.out))) >= 0;)
    for (int64_t head = 0; head < spec_.heads; ++head)
      std::copy_n(step.row(spec_.source, t) + head * from + spec_.first, to,
                  step.row(spec_.out, t) + head * to);
}

}  // namespace ingot
