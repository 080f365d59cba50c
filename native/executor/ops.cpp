#include "executor/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/turned_cache.h"

namespace ingot {

namespace {

void decode_row(const KernelTable& kernels, const WeightRef& weight, int64_t row, float* out) {
  const TypeTraits& traits = *find_type(static_cast<uint32_t>(weight.type));
  kernels.decode[traits.id](weight.data + row * weight.row_bytes(), out,
                            weight.columns / traits.block_weights);
}

}  // namespace

void EmbedOp::run(const Step& step, int member) {
  const int64_t width = spec_.weight.columns;
  for (int64_t t; (t = queue_.claim(step.batch.tokens)) >= 0;) {
    float* out = step.row(spec_.out, t);
    decode_row(step.kernels, spec_.weight, step.batch.ids[t], out);
    if (step.batch.adapted) add_adapter(step, t, member, out);
    if (spec_.scale != 1.0f)
      for (int64_t i = 0; i < width; ++i) out[i] *= spec_.scale;
    if (spec_.positions) {
      float* row = rows_.data() + member * width;
      decode_row(step.kernels, *spec_.positions, step.batch.positions[t], row);
      for (int64_t i = 0; i < width; ++i) out[i] += row[i];
    }
    if (spec_.types) {
      const float* row = spec_.types + (step.batch.types ? step.batch.types[t] : 0) * width;
      for (int64_t i = 0; i < width; ++i) out[i] += row[i];
    }
  }
}

void EmbedOp::adapt(int64_t, int64_t slot, std::optional<LowRank> weights) {
  if (weights) rank_ = std::max(rank_, weights->rank);
  low_.resize(members_ * rank_);
  adapters_.set(slot, weights);
}

void EmbedOp::add_adapter(const Step& step, int64_t token, int member, float* out) {
  const AdaptedRows& rows = step.batch.adapted->all;
  const int32_t place = rows.place(token);
  const LowRank* weights = place < 0 ? nullptr : adapters_.at(rows.use(place).slot);
  if (!weights) return;
  float* low = low_.data() + member * rank_;
  decode_row(step.kernels, weights->down, step.batch.ids[token], low);
  const float scale = weights->scale * rows.use(place).scale;
  for (int64_t k = 0; k < weights->rank; ++k) low[k] *= scale;
  weights->add(step.kernels, 0, spec_.weight.columns, low, 0, 1, out, 0);
}

void TakeRowsOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.batch.tokens)) >= 0;)
    std::copy_n(step.batch.rows + t * out_.width, out_.width, step.row(out_, t));
}

void NormOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.rows(out_))) >= 0;) {
    float* out = step.row(out_, t);
    norm_.apply(step.kernels, step.row(source_, t), source_.width, out);
    if (!residual_) continue;
    const float* residual = step.row(*residual_, t);
    for (int64_t i = 0; i < out_.width; ++i) out[i] += residual[i];
  }
}

void ActivateOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.rows(out_))) >= 0;)
    step.kernels.activate(kind_, step.row(gate_, t), up_ ? step.row(*up_, t) : nullptr, out_.width,
                          step.row(out_, t));
}

void AddOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.rows(out_))) >= 0;) {
    const float *left = step.row(left_, t), *right = step.row(right_, t);
    float* out = step.row(out_, t);
    for (int64_t i = 0; i < out_.width; ++i) out[i] = left[i] + right[i];
  }
}

void ScaleOp::run(const Step& step, int) {
  const float all = spec_.single ? spec_.factor * spec_.weight[0] : spec_.factor;
  const float* weight = spec_.single ? nullptr : spec_.weight;
  for (int64_t t; (t = queue_.claim(step.rows(spec_.out))) >= 0;) {
    const float* source = step.row(spec_.source, t);
    float* out = step.row(spec_.out, t);
    for (int64_t i = 0; i < spec_.out.width; ++i)
      out[i] = source[i] * (weight ? all * weight[i] : all);
  }
}

void KeepPeaksOp::run(const Step& step, int) {
  const int64_t width = out_.width;
  for (int64_t t; (t = queue_.claim(step.rows(out_))) >= 0;) {
    const float* source = step.row(source_, t);
    float* out = step.row(out_, t);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) sum += source[i];
    const double mean = sum / width;
    for (int64_t i = 0; i < width; ++i) squares += (source[i] - mean) * (source[i] - mean);
    const auto least = static_cast<float>(mean + deviations_ * std::sqrt(squares / width));
    for (int64_t i = 0; i < width; ++i) out[i] = std::max(source[i] - least, 0.0f);
  }
}

void XieluOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.rows(spec_.out))) >= 0;)
    step.kernels.xielu(step.row(spec_.source, t), spec_.source.width, spec_.rise, spec_.fall,
                       spec_.slope, step.row(spec_.out, t));
}

void TemperOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.batch.tokens)) >= 0;) {
    const int64_t steps = (step.batch.positions[t] + spec_.offset) / spec_.length;
    const auto factor =
        static_cast<float>(1 + spec_.scale * std::log1p(static_cast<double>(steps)));
    const float* source = step.row(spec_.source, t);
    float* out = step.row(spec_.out, t);
    for (int64_t i = 0; i < spec_.out.width; ++i) out[i] = source[i] * factor;
  }
}

void SelectOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.batch.outputs)) >= 0;)
    std::copy_n(step.row(source_, step.batch.output[t]), source_.width, step.row(out_, t));
}

void SoftCapOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.rows(out_))) >= 0;)
    step.kernels.softcap(step.row(source_, t), source_.width, cap_, step.row(out_, t));
}

void RotaryTable::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.batch.tokens)) >= 0;) {
    float* out = values_.data() + 2 * t * pairs();
    for (int64_t i = 0; i < pairs(); ++i) {
      const double angle = step.batch.positions[t] * rotary_.frequencies[i];
      out[i] = static_cast<float>(std::cos(angle) * rotary_.magnitude);
      out[pairs() + i] = static_cast<float>(std::sin(angle) * rotary_.magnitude);
    }
  }
}

void RopeOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.batch.tokens)) >= 0;) {
    float* out = step.row(out_, t);
    std::copy_n(step.row(source_, t), source_.width, out);
    for (int64_t i = 0; i < out_.width; i += head_size_)
      step.kernels.rotate_head(out + i, rotary_->pairs(), rotary_->interleaved(), rotary_->cos(t),
                               rotary_->sin(t));
  }
}

void StoreKvOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.batch.tokens)) >= 0;) {
    const SequenceRun* run = step.batch.run;
    while (t >= run->first + run->count) ++run;
    if (spec_.query) turn(step, *spec_.query, spec_.query_norm, t);
    turn(step, spec_.key, spec_.key_norm, t);
    store(step, *run, t);
  }
}

void StoreKvOp::turn(const Step& step, const ValueRef& value, const std::optional<NormRef>& norm,
                     int64_t token) const {
  float* row = step.row(value, token);
  if (spec_.norms_last) rotate(step, value, token);
  if (norm) norm->apply(step.kernels, row, value.width, row);
  if (!spec_.norms_last) rotate(step, value, token);
}

void StoreKvOp::rotate(const Step& step, const ValueRef& value, int64_t token) const {
  if (!spec_.rotary) return;
  float* row = step.row(value, token);
  for (int64_t i = 0; i < value.width; i += spec_.cache.head_size)
    step.kernels.rotate_head(row + i, spec_.rotary->pairs(), spec_.rotary->interleaved(),
                             spec_.rotary->cos(token), spec_.rotary->sin(token));
}

// Writes a token's key and value where attention expects them (kernels/attention.h,
// turned_cache.h).
void StoreKvOp::store(const Step& step, const SequenceRun& run, int64_t token) {
  const CacheLayer& cache = spec_.cache;
  const TypeTraits& traits = *find_type(static_cast<uint32_t>(cache.type));
  const auto encode = step.kernels.encode[traits.id];
  const int64_t position = step.batch.positions[token];
  const int64_t slot = position % kKvBlockTokens;
  const int64_t blocks = cache.head_size / traits.block_weights;
  const int64_t row_bytes = blocks * traits.block_bytes;
  uint8_t* block =
      cache.pool + run.tables[cache.group][position / kKvBlockTokens] * cache.block_bytes;
  const float* key = step.row(spec_.key, token);
  const float* value = step.row(spec_.value, token);
  alignas(64) float joined[kMaxHeadSize];
  alignas(64) uint8_t row[4 * kMaxHeadSize];
  if (cache.shared_value) {
    std::copy_n(key, spec_.key.width, joined);
    std::copy_n(value, spec_.value.width, joined + spec_.key.width);
    key = joined;
  }
  for (int64_t head = 0; head * cache.head_size < spec_.key.width; ++head) {
    uint8_t* keys = block + cache.key_offset(head);
    if (!is_turned(cache.type)) {  // transposed: one element to each run of positions
      encode(key + head * cache.head_size, row, blocks);
      for (int64_t d = 0; d < cache.head_size; ++d)
        std::memcpy(keys + (d * kKvBlockTokens + slot) * traits.block_bytes,
                    row + d * traits.block_bytes, traits.block_bytes);
    } else {
      encode(key + head * cache.head_size, row, blocks);
      store_turned(row, blocks, traits.block_bytes, cache.type, true, slot, keys);
    }
    if (cache.shared_value) continue;
    uint8_t* values = block + cache.value_offset(head);
    if (is_turned(cache.type)) {
      encode(value + head * cache.head_size, row, blocks);
      store_turned(row, blocks, traits.block_bytes, cache.type, false, slot, values);
    } else {
      encode(value + head * cache.head_size, values + slot * row_bytes, blocks);
    }
  }
}

}  // namespace ingot
