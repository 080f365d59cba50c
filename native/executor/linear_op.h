// Linear maps of one input, with what comes before and after them in the same pass.
//
//     x = norm(source)                                   if there is a norm
//     y_p = scale_p * (x @ weight_p + bias_p)            for each part p
//     out_p = y_p + residual_p                           or, if gated,
//     out = activation(y_0) * y_1                        (without up: no product)
//
// Rows of all parts form one list of work, so that a small part (keys, values) does not
// wait for a large one.
#pragma once

#include <optional>
#include <vector>

#include "executor/aligned.h"
#include "executor/ops.h"

namespace ingot {

struct LinearPart {
  WeightRef weight;
  const float* bias;  // may be null
  float scale;
  std::optional<ValueRef> residual;
  ValueRef out;
};

class LinearOp : public Op {
 public:
  struct Spec {
    ValueRef source;
    std::optional<NormRef> norm;
    std::vector<LinearPart> parts;
    std::optional<Activation> gate;  // parts are gate and perhaps up; parts[0].out is the result's
  };
  // Buffers of the largest input any linear of the model has, shared by all of them.
  struct Buffers {
    const KernelTable& kernels;
    int64_t members, max_tokens;
    int64_t width = 0;          // the largest so far
    std::vector<float> normed;  // [tokens][width], then one row per member
    AlignedBytes quantized;     // [tokens][quantized bytes of width], then one per member
    AlignedBytes scratch;       // per member: the kernels', then gated results
    int64_t quantized_stride = 0, kernel_scratch = 0, member_scratch = 0;
    Buffers(const KernelTable& kernels, int64_t members, int64_t max_tokens);
    void make_room(int64_t width);
  };

  LinearOp(Spec spec, Buffers& buffers)
      : spec_(std::move(spec)), buffers_(buffers), rows_(buffers.members) {
    buffers_.make_room(spec_.source.width);
    for (const LinearPart& part : spec_.parts) quantizer_.add(buffers_.kernels, part.weight.type);
  }
  void reset() override {
    columns_.reset();
    rows_.reset();
  }
  void run(const Step& step, int member) override;

 private:
  void prepare(const Step& step, int64_t begin, int64_t end, float* normed, uint8_t* quantized,
               int64_t room) const;
  void run_rows(const Step& step, const LinearPart& part, const LinearInput& input, int64_t begin,
                int64_t end, uint8_t* scratch) const;
  void run_gated(const Step& step, const LinearInput& input, int64_t begin, int64_t end,
                 uint8_t* scratch) const;

  const Spec spec_;
  Buffers& buffers_;
  InputQuantizer quantizer_;
  Queue columns_;
  Shares rows_;
};

}  // namespace ingot
