// Joining neighbouring symbols, best pair first: the loop of byte-pair encoding and of
// SentencePiece, which differ only in what makes a pair good.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace ingot::tokenizer {

struct Symbol {
  std::uint32_t start;  // byte offset in the word
  std::uint32_t bytes;
  Id id;
};

// What two neighbours can become. A lower order goes first, ties from the left.
struct Joint {
  static constexpr std::uint32_t kNever = 0xFFFFFFFF;
  std::uint32_t order = kNever;
  Id id = kNone;
};

class Merger {
 public:
  std::vector<Symbol> symbols;

  // Joins until no pair is left. joint(left, right) gives the Joint of two symbols.
  template <class Find>
  void merge(const Find& joint) {
    if (symbols.size() < 2) return;
    joints_.resize(symbols.size());
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      joints_[i] = joint(symbols[i], symbols[i + 1]);
    }
    joints_.back() = {};
    symbols.size() <= kShort ? merge_short(joint) : merge_long(joint);
  }

 private:
  // Up to here a scan for the best pair beats the heap.
  static constexpr std::size_t kShort = 40;

  template <class Find>
  void merge_short(const Find& joint) {
    std::size_t count = symbols.size();
    while (count > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < count; ++i) {
        if (joints_[i].order < joints_[best].order) best = i;
      }
      if (joints_[best].order == Joint::kNever) break;
      join(symbols[best], symbols[best + 1], joints_[best]);
      std::move(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
      std::move(joints_.begin() + best + 2, joints_.begin() + count, joints_.begin() + best + 1);
      --count;
      joints_[best] = best + 1 < count ? joint(symbols[best], symbols[best + 1]) : Joint{};
      if (best > 0) joints_[best - 1] = joint(symbols[best - 1], symbols[best]);
    }
    symbols.resize(count);
  }

  // A heap of (order, place); an entry whose order is no longer that of its place is stale.
  template <class Find>
  void merge_long(const Find& joint) {
    const auto count = static_cast<std::uint32_t>(symbols.size());
    links_.resize(count);
    heap_.clear();
    for (std::uint32_t i = 0; i < count; ++i) {
      links_[i] = {i - 1, i + 1};
      if (joints_[i].order != Joint::kNever) heap_.push_back(key(joints_[i].order, i));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      const std::uint64_t top = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      const auto left = static_cast<std::uint32_t>(top);
      if (joints_[left].order != top >> 32) continue;
      const std::uint32_t right = links_[left].next, after = links_[right].next;
      join(symbols[left], symbols[right], joints_[left]);
      symbols[right].bytes = 0;
      joints_[right] = {};
      links_[left].next = after;
      if (after < count) links_[after].previous = left;
      renew(joint, left, after, count);
      if (links_[left].previous < count) renew(joint, links_[left].previous, left, count);
    }
    std::erase_if(symbols, [](const Symbol& symbol) { return symbol.bytes == 0; });
  }

  template <class Find>
  void renew(const Find& joint, std::uint32_t left, std::uint32_t right, std::uint32_t count) {
    joints_[left] = right < count ? joint(symbols[left], symbols[right]) : Joint{};
    if (joints_[left].order == Joint::kNever) return;
    heap_.push_back(key(joints_[left].order, left));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  static std::uint64_t key(std::uint32_t order, std::uint32_t place) {
    return std::uint64_t{order} << 32 | place;
  }

  static void join(Symbol& left, const Symbol& right, const Joint& joint) {
    left.bytes += right.bytes;
    left.id = joint.id;
  }

  struct Link {
    std::uint32_t previous, next;  // beyond the count: none
  };
  std::vector<Joint> joints_;
  std::vector<Link> links_;
  std::vector<std::uint64_t> heap_;
};

}  // namespace ingot::tokenizer
