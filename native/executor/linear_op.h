// Linear maps of one input, with what comes before and after them in the same pass.
//
//     x = norm(source)                                   if there is a norm
//     y_p = scale_p * (x @ weight_p + bias_p)            for each part p; an adapter adds to
//                                                        the product (adapters.h)
//     out_p = y_p + residual_p                           or, if gated,
//     out = activation(y_0) * y_1                        (without up: no product)
//
// Rows of all parts form one list of work, so that a small part (keys, values) does not
// wait for a large one.
#pragma once

#include <optional>
#include <vector>

#include "executor/adapters.h"
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

class LinearOp : public AdaptableOp {
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
    // Of adapters, since there was one.
    int64_t parts = 0, rank = 0;  // the most so far
    std::vector<float> sorted;    // [places][width]: inputs
    std::vector<float> low;       // [parts][places][rank], under their scales
    Buffers(const KernelTable& kernels, int64_t members, int64_t max_tokens);
    void make_room(int64_t width);
    void make_adapter_room(int64_t parts, int64_t rank);
    struct Soon {
      Upcoming down, up;       // of the next operation; of the rows that are multiplied
      int64_t down_lines = 0;  // to ask for before each group of rows
    };
    std::vector<Soon> soon;    // of each member
    LinearOp* last = nullptr;  // of the program, so far
    float* low_row(int64_t part, int64_t place) {
      return low.data() + (part * max_tokens + place) * rank;
    }

   private:
    int64_t results() const;  // floats of a piece of work
  };

  LinearOp(Spec spec, Buffers& buffers)
      : spec_(std::move(spec)),
        buffers_(buffers),
        adapters_(spec_.parts.size()),
        low_(buffers.members),
        rows_(buffers.members) {
    buffers_.make_room(spec_.source.width);
    for (const LinearPart& part : spec_.parts) quantizer_.add(buffers_.kernels, part.weight.type);
    if (buffers_.last) buffers_.last->next_ = this;
    buffers_.last = this;
  }
  void reset() override {
    columns_.reset();
    low_.reset();
    rows_.reset();
  }
  void run(const Step& step, int member) override;

  int64_t parts() const override { return static_cast<int64_t>(spec_.parts.size()); }
  const WeightRef& matrix(int64_t part) const override { return spec_.parts[part].weight; }
  void adapt(int64_t part, int64_t slot, std::optional<LowRank> weights) override;

 private:
  void prepare(const Step& step, int64_t begin, int64_t end, float* normed, uint8_t* quantized,
               int64_t room, const AdaptedRows* adapted) const;
  const AdaptedRows* adapted_rows(const Step& step) const;
  // Rows [begin, end) of an adapter's first matrix, for the rows of a group.
  struct Down {
    const LowRank* weights;
    const AdaptedRows::Group* group;
    int64_t part, begin, end;
  };
  int64_t count_down(const AdaptedRows& adapted) const;
  Down find_down(const AdaptedRows& adapted, int64_t piece) const;
  void run_down(const Step& step, const AdaptedRows& adapted, const LinearInput& input, int member);
  void expect_down(const Step& step, int member, int64_t groups) const;
  void multiply(const Step& step, int64_t part, const LinearInput& input, int64_t begin,
                int64_t end, float* out, int64_t stride, uint8_t* scratch, int member) const;
  void add_adapters(const Step& step, int64_t part, int64_t begin, int64_t end, float* out,
                    int64_t stride) const;
  // `input` are the step's columns from `first` on.
  void run_rows(const Step& step, int64_t number, const LinearInput& input, int64_t first,
                int64_t begin, int64_t end, uint8_t* scratch, int member) const;
  void run_gated(const Step& step, const LinearInput& input, int64_t first, int64_t begin,
                 int64_t end, uint8_t* scratch, int member) const;

  const Spec spec_;
  Buffers& buffers_;
  InputQuantizer quantizer_;
  std::vector<LowRankSlots> adapters_;  // of each part
  const LinearOp* next_ = nullptr;      // of the program
  Queue columns_;
  Shares low_, rows_;
};

}  // namespace ingot
