#include "executor/expert_ops.h"

#include <algorithm>
#include <cmath>

#include "executor/pieces.h"
#include "executor/weight_copy.h"

namespace ingot {
namespace {

// Rows of a mix's piece: results of all its experts stay in the scratch until they are mixed.
constexpr int64_t kMaxMixRows = 240;
constexpr int64_t kMixRowMultiple = 32;  // of a prompt: two tiles, or whole strips

int64_t mix_rows(const Step& step, const ExpertWeight& weight) {
  if (step.batch.phase == Phase::kGeneration)
    return std::min(piece_rows(step, weight.all, weight.rows), kMaxMixRows);
  const int64_t fair = round_up(weight.rows / (2 * step.members), kMixRowMultiple);
  return std::clamp(fair, kMixRowMultiple, step.kernels.prompt_rows);
}

}  // namespace

void ExpertBuffers::make_room(int64_t experts, int64_t used, int64_t width, bool floats) {
  const int64_t wanted_places = ExpertGroups::most_places(experts, used, max_tokens);
  places = std::max(places, wanted_places);
  groups.make_room(experts, used, max_tokens);
  const auto grow = [](AlignedBytes& bytes, int64_t& size, int64_t wanted) {
    if (wanted <= size) return;
    size = wanted;
    bytes = AlignedBytes(size);
  };
  grow(quantized, quantized_bytes, (wanted_places + members) * kernels.quantized_bytes(width));
  if (floats)
    grow(gathered, gathered_bytes, wanted_places * width * static_cast<int64_t>(sizeof(float)));
  kernel_scratch = std::max(kernel_scratch, kernels.scratch_bytes(width));
  const int64_t generated = std::min(max_tokens, kMaxGenerationTokens);
  const int64_t results =
      std::max({2 * kernels.prompt_rows * max_tokens, 2 * kMaxPieceRows * generated,
                kernels.prompt_rows * max_tokens * used, kMaxMixRows * generated * used});
  const int64_t wanted =
      AlignedBytes::round_up(kernel_scratch + results * static_cast<int64_t>(sizeof(float)));
  if (wanted > member_scratch) {
    member_scratch = wanted;
    scratch = AlignedBytes(members * member_scratch);
  }
}

// All operations of the program are there.
void ExpertBuffers::make_adapter_room(int64_t wanted_parts, int64_t wanted_rank) {
  parts = std::max(parts, wanted_parts);
  rank = std::max(rank, wanted_rank);
  low.resize(parts * places * rank);
}

ExpertOp::ExpertOp(ValueRef source, bool own, std::vector<ExpertWeight> weights,
                   ExpertBuffers& buffers)
    : source_(source),
      own_(own),
      weights_(std::move(weights)),
      buffers_(buffers),
      rows_(buffers.members),
      width_(weights_[0].all.columns),
      adapters_(weights_.size()) {
  for (const ExpertWeight& weight : weights_) quantizer_.add(buffers_.kernels, weight.all.type);
}

void ExpertOp::adapt(int64_t part, int64_t slot, std::optional<LowRank> weights) {
  if (weights) buffers_.make_adapter_room(parts(), weights->rank);
  adapters_[part].set(slot, weights);
}

// The one input of all experts of a single token: cheaper to prepare than to meet for.
bool ExpertOp::everyone_prepares(const Step& step) const {
  return step.batch.phase == Phase::kGeneration && buffers_.groups.tokens() == 1 && !own_;
}

uint8_t* ExpertOp::own_column(int member) const {
  const int64_t bytes = buffers_.kernels.quantized_bytes(width_);
  return buffers_.quantized.data() + buffers_.quantized_bytes - (member + 1) * bytes;
}

// What an expert multiplies for a token.
const float* ExpertOp::source_of(const Step& step, int32_t pair) const {
  const int64_t used = buffers_.groups.used(), k = own_ ? pair % used : 0;
  return step.row(source_, pair / used) + k * width_;
}

// What is added to a part for the token of a place; null: nothing.
const LowRank* ExpertOp::adapter(const Step& step, int64_t part, int64_t place) const {
  const int32_t pair = buffers_.groups.pair(place);
  if (pair < 0) return nullptr;
  const AdaptedRows& rows = step.batch.adapted->of(source_);
  const int32_t sorted = rows.place(pair / buffers_.groups.used());
  return sorted < 0 ? nullptr : adapters_[part].at(rows.use(sorted).slot);
}

// Whether an adapter adds to one of the parts in this step.
bool ExpertOp::is_adapted(const Step& step) const {
  if (!step.batch.adapted) return false;
  for (const AdaptedRows::Group& group : step.batch.adapted->of(source_).groups())
    for (const LowRankSlots& slots : adapters_)
      if (slots.at(group.slot)) return true;
  return false;
}

void ExpertOp::prepare(const Step& step, int member) {
  gather(step, member);
  if (!is_adapted(step)) return;
  run_down(step);
  step.barrier.wait();
}

// low = scale * (x @ down.T), for each token and expert whose adapter adds to them. A token is
// multiplied alone, so that its result does not depend on others.
void ExpertOp::run_down(const Step& step) {
  const ExpertGroups& groups = buffers_.groups;
  const AdaptedRows& rows = step.batch.adapted->of(source_);
  for (int64_t i; (i = low_.claim(groups.active())) >= 0;) {
    const int64_t expert = groups.expert(i), first = groups.first(expert);
    for (int64_t place = first; place < first + groups.count(expert); ++place) {
      for (int64_t part = 0; part < parts(); ++part) {
        const LowRank* stack = adapter(step, part, place);
        if (!stack) continue;
        const WeightRef down = stack->of(expert, stacked()).down;
        const int32_t pair = groups.pair(place);
        const LinearInput x{.values = source_of(step, pair),
                            .value_stride = width_,
                            .quantized = nullptr,
                            .bytes = nullptr,
                            .quantized_stride = 0,
                            .columns = 1,
                            .width = width_};
        float* low = buffers_.low_row(part, place);
        multiply_rows(step, down, x, 0, stack->rank, low, buffers_.rank, nullptr);
        const float scale = stack->scale * rows.use(rows.place(pair / groups.used())).scale;
        for (int64_t r = 0; r < stack->rank; ++r) low[r] *= scale;
      }
    }
  }
}

// Adds what adapters give for rows [begin, end) of an expert to out[column][row - begin].
void ExpertOp::add_adapters(const Step& step, int64_t part, int64_t expert, int64_t begin,
                            int64_t end, float* out) const {
  const int64_t first = buffers_.groups.first(expert), last = first + buffers_.groups.count(expert);
  for (int64_t place = first, count; place < last; place += count) {
    const LowRank* stack = adapter(step, part, place);
    count = 1;  // columns beside each other
    if (!stack) continue;
    while (place + count < last && adapter(step, part, place + count) == stack) ++count;
    stack->of(expert, stacked())
        .add(step.kernels, begin, end, buffers_.low_row(part, place), buffers_.rank, count,
             out + (place - first) * (end - begin), end - begin);
  }
}

// Gathers and quantizes the inputs.
void ExpertOp::gather(const Step& step, int member) {
  const KernelTable& kernels = step.kernels;
  const ExpertGroups& groups = buffers_.groups;
  const bool prompt = step.batch.phase == Phase::kPrompt;
  if (everyone_prepares(step)) {
    quantizer_.quantize(kernels, prompt, step.row(source_, 0), width_, own_column(member), 1, 0);
    return;
  }
  const int64_t room = round_up(groups.places(), KernelTable::kColumnGroup);
  float* gathered = reinterpret_cast<float*>(buffers_.gathered.data());
  // Neighbours share cache lines in a prompt's tiles, so a group goes to one member.
  const int64_t group = prompt ? KernelTable::kColumnGroup : 1;
  for (int64_t g; (g = columns_.claim(count_pieces(groups.places(), group))) >= 0;) {
    const int64_t end = std::min(groups.places(), (g + 1) * group);
    for (int64_t place = g * group; place < end; ++place) {
      const int32_t pair = groups.pair(place);
      if (pair < 0) continue;
      const float* x = source_of(step, pair);
      if (quantizer_.reads_floats()) std::copy_n(x, width_, gathered + place * width_);
      quantizer_.quantize(kernels, prompt, x, width_, buffers_.quantized.data(), room, place);
    }
  }
  step.barrier.wait();
}

LinearInput ExpertOp::input(const Step& step, int member, int64_t expert) const {
  const KernelTable& kernels = step.kernels;
  const ExpertGroups& groups = buffers_.groups;
  if (everyone_prepares(step)) {
    const uint8_t* column = own_column(member);
    return {.values = step.row(source_, 0),
            .value_stride = width_,
            .quantized = column,
            .bytes = column + kernels.bytes_begin(1, width_),
            .quantized_stride = kernels.quantized_stride(1),
            .columns = 1,
            .width = width_};
  }
  const int64_t first = groups.first(expert);
  const int64_t room = round_up(groups.places(), KernelTable::kColumnGroup);
  const bool prompt = step.batch.phase == Phase::kPrompt;
  const float* gathered = reinterpret_cast<const float*>(buffers_.gathered.data());
  const uint8_t* quantized = buffers_.quantized.data();
  const int64_t offset = kernels.quantized_stride(first);
  return {.values = quantizer_.reads_floats() ? gathered + first * width_ : nullptr,
          .value_stride = width_,
          .quantized = quantized + (prompt ? kernels.prompt_offset(width_, first) : offset),
          .bytes = quantized + kernels.bytes_begin(room, width_) + offset,
          .quantized_stride = kernels.quantized_stride(room),
          .columns = groups.count(expert),
          .width = width_};
}

void ExpertOp::multiply(const Step& step, int64_t part, int64_t expert, const LinearInput& input,
                        int64_t begin, int64_t end, float* out, int member) const {
  const ExpertWeight& weight = weights_[part];
  const int64_t rows = end - begin, row = weight.row_of(expert);
  // What is written is out[c * stride + r] for r from the first on.
  multiply_rows(step, weight.all, input, row + begin, row + end, out - row - begin, rows,
                scratch(member));
  if (step.batch.adapted) add_adapters(step, part, expert, begin, end, out);
  const float* bias = weight.bias_of(expert);
  if (!bias) return;
  for (int64_t c = 0; c < input.columns; ++c)
    for (int64_t r = 0; r < rows; ++r) out[c * rows + r] += bias[begin + r];
}

void ExpertGateOp::run(const Step& step, int member) {
  prepare(step, member);
  const ExpertGroups& groups = buffers_.groups;
  const int64_t rows = weights_[0].rows;
  const int64_t each = piece_rows(step, weights_[0].all, groups.active() * rows);
  const int64_t pieces = count_pieces(rows, each);
  for (int64_t piece; (piece = rows_.claim(groups.active() * pieces, member)) >= 0;) {
    const int64_t expert = groups.expert(piece / pieces), begin = piece % pieces * each;
    const int64_t end = std::min(rows, begin + each), count = end - begin;
    const LinearInput x = input(step, member, expert);
    float* gate = results(member);
    float* up = weights_.size() == 2 ? gate + count * x.columns : nullptr;
    multiply(step, 0, expert, x, begin, end, gate, member);
    if (up) multiply(step, 1, expert, x, begin, end, up, member);
    for (int64_t c = 0; c < x.columns; ++c) {
      const int32_t pair = groups.pair(groups.first(expert) + c);
      float* out = step.row(out_, pair / groups.used()) + pair % groups.used() * rows + begin;
      step.kernels.activate(kind_, gate + c * count, up ? up + c * count : nullptr, count, out);
    }
  }
}

void ExpertMixOp::run(const Step& step, int member) {
  prepare(step, member);
  const ExpertGroups& groups = buffers_.groups;
  const ExpertWeight& weight = weights_[0];
  const int64_t each = mix_rows(step, weight), used = groups.used();
  for (int64_t piece; (piece = rows_.claim(count_pieces(weight.rows, each), member)) >= 0;) {
    const int64_t begin = piece * each, end = std::min(weight.rows, begin + each);
    const int64_t count = end - begin;
    for (int64_t i = 0; i < groups.active(); ++i) {
      const int64_t expert = groups.expert(i);
      multiply(step, 0, expert, input(step, member, expert), begin, end,
               results(member) + groups.first_packed(expert) * count, member);
    }
    for (int64_t t = 0; t < groups.tokens(); ++t) {
      const float* parts[kMaxExpertsUsed];
      for (int64_t k = 0; k < used; ++k)
        parts[k] = results(member) + groups.packed(t * used + k) * count;
      step.kernels.mix_rows(parts, step.row(choice_, t) + used, used,
                            residual_ ? step.row(*residual_, t) + begin : nullptr, count,
                            step.row(out_, t) + begin);
    }
  }
}

void GateRowsOp::run(const Step& step, int) {
  for (int64_t t; (t = queue_.claim(step.rows(out_))) >= 0;) {
    const float gate = *step.row(gate_, t);
    const float share = sigmoid_ ? 1.0f / (1.0f + std::exp(-gate)) : gate;
    const float* row = step.row(source_, t);
    step.kernels.mix_rows(&row, &share, 1, residual_ ? step.row(*residual_, t) : nullptr,
                          out_.width, step.row(out_, t));
  }
}

}  // namespace ingot
