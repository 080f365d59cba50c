// Several streams of a token side by side in one row, and what moves between them.
#pragma once

#include "executor/ops.h"

namespace ingot {

// out = first, then the streams of others, each as large as first: times the root of the mean
// square of first over its own, whose square is at least epsilon
class StackStreamsOp : public Op {
 public:
  struct Spec {
    ValueRef first, others, out;
    float epsilon;
  };
  explicit StackStreamsOp(Spec spec) : spec_(spec) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const Spec spec_;
  Queue queue_;
};

// out[i] = source[i] + the sum of gains[i][j] * source[j]
class MixStreamsOp : public Op {
 public:
  struct Spec {
    ValueRef source, gains, out;
    int64_t streams;
  };
  explicit MixStreamsOp(Spec spec) : spec_(spec) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const Spec spec_;
  Queue queue_;
};

// out[i] = source[i] + (1 + gains[i]) * (row - source[active])
class CorrectStreamsOp : public Op {
 public:
  struct Spec {
    ValueRef source, row, gains, out;
    int64_t active;
  };
  explicit CorrectStreamsOp(Spec spec) : spec_(spec) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const Spec spec_;
  Queue queue_;
};

// out = source, with row added to every stream but the first
class AddToStreamsOp : public Op {
 public:
  AddToStreamsOp(ValueRef source, ValueRef row, ValueRef out)
      : source_(source), row_(row), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef source_, row_, out_;
  Queue queue_;
};

// out = the mean of the streams of source
class MeanStreamsOp : public Op {
 public:
  MeanStreamsOp(ValueRef source, ValueRef out) : source_(source), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef source_, out_;
  Queue queue_;
};

}  // namespace ingot
