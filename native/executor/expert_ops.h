// Linear maps of the experts that a RouteOp chose: each expert's rows meet the inputs of the
// tokens that use it, and no byte of an expert that nobody uses is read.
//
//     gate:  out[k] = activation(x @ gate_k + bias_k) * (x @ up_k + bias_k)
//     mix:   out = sum over k of weight_k * (x_k @ down_k + bias_k) + residual
//
// An adapter adds to each expert's products (adapters.h).
//
// k counts the experts of a token; x is the same for all of them, x_k is each one's own. Inputs
// are gathered expert by expert and then multiplied by the kernels of all linear maps. A token's
// experts are added in the order of its choice, whoever else uses them.
#pragma once

#include <optional>
#include <vector>

#include "executor/adapters.h"
#include "executor/aligned.h"
#include "executor/ops.h"
#include "executor/route.h"

namespace ingot {

// One matrix per expert.
struct ExpertWeight {
  WeightRef all;        // the rows of all experts, one after the other
  int64_t stored;       // rows of one
  int64_t first, rows;  // of those, the ones that are read
  const float* bias;    // [experts][stored]; may be null

  int64_t row_of(int64_t expert) const { return expert * stored + first; }  // the first
  const float* bias_of(int64_t expert) const { return bias ? bias + row_of(expert) : nullptr; }
  int64_t experts() const { return all.rows / stored; }
  bool is_float() const {
    return all.type == TensorType::F32 || all.type == TensorType::F16 ||
           all.type == TensorType::BF16;
  }
};

// Working memory for the largest of the model's expert layers, shared by all of them.
struct ExpertBuffers {
  const KernelTable& kernels;
  int64_t members, max_tokens;
  ExpertGroups groups;
  AlignedBytes gathered;   // [places][width] floats, for weights that are floats
  AlignedBytes quantized;  // [places], then one column per member
  AlignedBytes scratch;    // per member: the kernels', then results
  int64_t gathered_bytes = 0, quantized_bytes = 0, kernel_scratch = 0, member_scratch = 0;
  // Of adapters, since there was one.
  int64_t places = 0, parts = 0, rank = 0;  // the most so far
  std::vector<float> low;                   // [parts][places][rank], under their scales

  ExpertBuffers(const KernelTable& kernels, int64_t members, int64_t max_tokens)
      : kernels(kernels), members(members), max_tokens(max_tokens) {}
  void make_room(int64_t experts, int64_t used, int64_t width, bool floats);
  void make_adapter_room(int64_t parts, int64_t rank);
  float* low_row(int64_t part, int64_t place) {
    return low.data() + (part * places + place) * rank;
  }
};

// What both have in common: the inputs, sorted by expert.
class ExpertOp : public AdaptableOp {
 public:
  void reset() override {
    columns_.reset();
    low_.reset();
    rows_.reset();
  }
  int64_t parts() const override { return static_cast<int64_t>(weights_.size()); }
  const WeightRef& matrix(int64_t part) const override { return weights_[part].all; }
  int64_t stacked() const override { return weights_[0].experts(); }
  int64_t outputs(int64_t part) const override { return weights_[part].rows; }
  void adapt(int64_t part, int64_t slot, std::optional<LowRank> weights) override;

 protected:
  // `own`: every chosen expert has a part of the source for itself.
  ExpertOp(ValueRef source, bool own, std::vector<ExpertWeight> weights, ExpertBuffers& buffers);

  // Gathers the inputs, and multiplies them by the first matrices of adapters; all members call it.
  void prepare(const Step& step, int member);
  LinearInput input(const Step& step, int member, int64_t expert) const;
  // Rows of one expert times its inputs: out[column][row - begin], with adapters and the bias.
  void multiply(const Step& step, int64_t part, int64_t expert, const LinearInput& input,
                int64_t begin, int64_t end, float* out, int member) const;
  uint8_t* scratch(int member) const {
    return buffers_.scratch.data() + member * buffers_.member_scratch;
  }
  float* results(int member) const {
    return reinterpret_cast<float*>(scratch(member) + buffers_.kernel_scratch);
  }

  const ValueRef source_;
  const bool own_;
  const std::vector<ExpertWeight> weights_;
  ExpertBuffers& buffers_;
  Shares rows_;

 private:
  bool everyone_prepares(const Step& step) const;
  uint8_t* own_column(int member) const;
  void gather(const Step& step, int member);
  const float* source_of(const Step& step, int32_t pair) const;
  const LowRank* adapter(const Step& step, int64_t part, int64_t place) const;
  bool is_adapted(const Step& step) const;
  void run_down(const Step& step);
  void add_adapters(const Step& step, int64_t part, int64_t expert, int64_t begin, int64_t end,
                    float* out) const;

  const int64_t width_;
  InputQuantizer quantizer_;
  std::vector<LowRankSlots> adapters_;  // of each part
  Queue columns_, low_;
};

class ExpertGateOp : public ExpertOp {
 public:
  // The weights are gate and perhaps up.
  ExpertGateOp(ValueRef source, bool own, std::vector<ExpertWeight> weights, Activation kind,
               ValueRef out, ExpertBuffers& buffers)
      : ExpertOp(source, own, std::move(weights), buffers), kind_(kind), out_(out) {}
  void run(const Step& step, int member) override;

 private:
  const Activation kind_;
  const ValueRef out_;
};

class ExpertMixOp : public ExpertOp {
 public:
  ExpertMixOp(ValueRef source, bool own, ExpertWeight weight, ValueRef choice,
              std::optional<ValueRef> residual, ValueRef out, ExpertBuffers& buffers)
      : ExpertOp(source, own, {weight}, buffers), choice_(choice), residual_(residual), out_(out) {}
  void run(const Step& step, int member) override;

 private:
  const ValueRef choice_;
  const std::optional<ValueRef> residual_;
  const ValueRef out_;
};

// out = sigmoid(gate) * source + residual, or gate * source + residual
class GateRowsOp : public Op {
 public:
  GateRowsOp(ValueRef source, ValueRef gate, bool sigmoid, std::optional<ValueRef> residual,
             ValueRef out)
      : source_(source), gate_(gate), sigmoid_(sigmoid), residual_(residual), out_(out) {}
  void reset() override { queue_.reset(); }
  void run(const Step& step, int member) override;

 private:
  const ValueRef source_, gate_;
  const bool sigmoid_;  // else the gate is taken as it is
  const std::optional<ValueRef> residual_;
  const ValueRef out_;
  Queue queue_;
};

}  // namespace ingot
