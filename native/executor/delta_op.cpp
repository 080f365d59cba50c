#include "executor/delta_op.h"

#include <algorithm>
#include <cmath>

namespace ingot {

void DeltaRuleOp::run(const Step& step, int) {
  const int64_t vectors = spec_.heads() * spec_.vectors();
  for (int64_t i; (i = queue_.claim(step.batch.runs * vectors)) >= 0;)
    move(step, step.batch.run[i / vectors], i % vectors);
}

void DeltaRuleOp::move(const Step& step, const SequenceRun& run, int64_t vector) const {
  const int64_t head = vector / spec_.vectors(), lane = vector % spec_.vectors() * kLanes;
  const int64_t first = head * spec_.value_size() + lane;
  const int64_t key_first = spec_.key_head(head) * spec_.key_size();
  const int64_t floats = spec_.key_size() * kLanes;
  const StateWalk walk(step, run, spec_.state);
  float* state = walk.start(vector * floats, floats);
  walk.move_on(state, vector * floats, floats, [&](int64_t done, int64_t to) {
    const int64_t token = run.first + done;
    step.kernels.delta_rule({to - done, step.row(spec_.query, token) + key_first,
                             step.row(spec_.key, token) + key_first, spec_.key.width,
                             spec_.key_size(), step.row(spec_.value, token) + first,
                             step.row(spec_.out, token) + first, spec_.value.width,
                             std::min(kLanes, spec_.value_size() - lane),
                             step.row(spec_.step, token) + head, step.row(spec_.rate, token) + head,
                             spec_.heads(), spec_.decay[head], spec_.bias[head], spec_.epsilon,
                             1.0f / std::sqrt(static_cast<float>(spec_.key_size())), state});
  });
}

}  // namespace ingot
