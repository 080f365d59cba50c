#include "executor/stream_ops.h"

#include <algorithm>
#include <cmath>

namespace ingot {

namespace {

double mean_square(const float* row, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(row[i]) * row[i];
  return sum / width;
}

}  // namespace

void StackStreamsOp::run(const Step& step, int) {
  const int64_t width = spec_.first.width;
  for (int64_t t; (t = queue_.claim(step.rows(spec_.out))) >= 0;) {
    const float *first = step.row(spec_.first, t), *others = step.row(spec_.others, t);
    float* out = step.row(spec_.out, t);
    const double size = std::sqrt(mean_square(first, width));
    std::copy_n(first, width, out);
    for (int64_t begin = 0; begin < spec_.others.width; begin += width) {
      const double own =
          std::max(mean_square(others + begin, width), static_cast<double>(spec_.epsilon));
      const auto factor = static_cast<float>(size / std::sqrt(own));
      for (int64_t i = begin; i < begin + width; ++i) out[width + i] = others[i] * factor;
    }
  }
}

void MixStreamsOp::run(const Step& step, int) {
  const int64_t streams = spec_.streams, width = spec_.out.width / streams;
  for (int64_t t; (t = queue_.claim(step.rows(spec_.out))) >= 0;) {
    const float *source = step.row(spec_.source, t), *gains = step.row(spec_.gains, t);
    float* out = step.row(spec_.out, t);
    std::copy_n(source, spec_.out.width, out);
    for (int64_t to = 0; to < streams; ++to)
      for (int64_t from = 0; from < streams; ++from) {
        const float weight = gains[to * streams + from];
        const float* x = source + from * width;
        float* sum = out + to * width;
        for (int64_t i = 0; i < width; ++i) sum[i] += weight * x[i];
      }
  }
}

void CorrectStreamsOp::run(const Step& step, int) {
  const int64_t width = spec_.row.width;
  for (int64_t t; (t = queue_.claim(step.rows(spec_.out))) >= 0;) {
    const float *source = step.row(spec_.source, t), *row = step.row(spec_.row, t);
    const float *gains = step.row(spec_.gains, t), *active = source + spec_.active * width;
    float* out = step.row(spec_.out, t);
    for (int64_t stream = 0; stream < spec_.gains.width; ++stream) {
      const float weight = 1 + gains[stream];
      const float* x = source + stream * width;
      for (int64_t i = 0; i < width; ++i)
        out[stream * width + i] = x[i] + weight * (row[i] - active[i]);
    }
  }
}

void AddToStreamsOp::run(const Step& step, int) {
  const int64_t width = row_.width;
  for (int64_t t; (t = queue_.claim(step.rows(out_))) >= 0;) {
    const float *source = step.row(source_, t), *row = step.row(row_, t);
    float* out = step.row(out_, t);
    std::copy_n(source, out_.width, out);
    for (int64_t begin = width; begin < out_.width; begin += width)
      for (int64_t i = 0; i < width; ++i) out[begin + i] += row[i];
  }
}

void MeanStreamsOp::run(const Step& step, int) {
  const int64_t width = out_.width, streams = source_.width / width;
  const float share = 1.0f / static_cast<float>(streams);
  for (int64_t t; (t = queue_.claim(step.rows(out_))) >= 0;) {
    const float* source = step.row(source_, t);
    float* out = step.row(out_, t);
    std::copy_n(source, width, out);
    for (int64_t begin = width; begin < source_.width; begin += width)
      for (int64_t i = 0; i < width; ++i) out[i] += source[begin + i];
    for (int64_t i = 0; i < width; ++i) out[i] *= share;
  }
}

}  // namespace ingot
