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

void HeadLinearOp::run_head(const Step& step, int64_t head, float* panel) const {
  const WeightRef& weight = spec_.weight;
  const TypeTraits& traits = *find_type(static_cast<uint32_t>(weight.type));
  const int64_t tokens = step.rows(spec_.out), kept = spec_.kept(), results = spec_.results();
  const float* x = step.row(spec_.source, 0) + head * (spec_.inputs() + kept);
  float* out = step.row(spec_.out, 0) + head * (kept + results);
  for (int64_t t = 0; t < tokens; ++t) {
    float* row = out + t * spec_.out.width;
    std::copy_n(x + t * spec_.source.width + spec_.inputs(), kept, row);
    if (spec_.transposed) std::fill_n(row + kept, results, 0.0f);
  }
  const int64_t of_head = weight.rows / spec_.heads;
  const int64_t row_blocks = weight.columns / traits.block_weights;
  for (int64_t first = 0; first < spec_.rows; first += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, spec_.rows - first);
    const int64_t row = head * of_head + spec_.first + first;
    step.kernels.decode[traits.id](weight.data + row * weight.row_bytes(), panel,
                                   rows * row_blocks);
    if (spec_.transposed)
      step.kernels.add_head_rows({panel, rows, weight.columns, x + first, spec_.source.width,
                                  tokens, out + kept, spec_.out.width});
    else
      step.kernels.map_head({panel, rows, weight.columns, x, spec_.source.width, tokens,
                             out + kept + first, spec_.out.width});
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
