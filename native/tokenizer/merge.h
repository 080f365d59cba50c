// Joining neighbouring symbols, best pair first: the loop of byte-pair encoding and of
// SentencePiece, which differ only in what makes a pair good.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
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
  // Up to here a scan for the best pair beats the queues.
  static constexpr std::size_t kShort = 100;

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

  // Places wait in one queue per order. Those of a queue come mostly from left to right, so that
  // the time grows with the length of the text and not with its logarithm too.
  template <class Find>
  void merge_long(const Find& joint) {
    const auto count = static_cast<std::uint32_t>(symbols.size());
    links_.resize(count);
    queues_.clear();
    for (std::uint32_t i = 0; i < count; ++i) {
      links_[i] = {i - 1, i + 1};
      enqueue(i);
    }
    while (!queues_.empty()) {
      const auto lowest = queues_.begin();
      const std::uint32_t order = lowest->first, left = lowest->second.pop();
      if (lowest->second.empty()) queues_.erase(lowest);
      if (joints_[left].order != order) continue;  // joined differently since
      const std::uint32_t right = links_[left].next, after = links_[right].next;
      join(symbols[left], symbols[right], joints_[left]);
      symbols[right].bytes = 0;
      joints_[right] = {};
      links_[left].next = after;
      if (after < count) links_[after].previous = left;
      joints_[left] = after < count ? joint(symbols[left], symbols[after]) : Joint{};
      enqueue(left);
      const std::uint32_t before = links_[left].previous;
      if (before < count) {
        joints_[before] = joint(symbols[before], symbols[left]);
        enqueue(before);
      }
    }
    std::erase_if(symbols, [](const Symbol& symbol) { return symbol.bytes == 0; });
  }

  void enqueue(std::uint32_t place) {
    if (joints_[place].order != Joint::kNever) queues_[joints_[place].order].push(place);
  }

  // Places, lowest first.
  class Queue {
   public:
    bool empty() const { return next_ == ascending_.size() && early_.empty(); }

    void push(std::uint32_t place) {
      if (ascending_.empty() || place >= ascending_.back()) {
        ascending_.push_back(place);
      } else {
        early_.push(place);
      }
    }

    std::uint32_t pop() {
      if (early_.empty() || (next_ < ascending_.size() && ascending_[next_] <= early_.top())) {
        return ascending_[next_++];
      }
      const std::uint32_t place = early_.top();
      early_.pop();
      return place;
    }

   private:
    std::vector<std::uint32_t> ascending_;
    std::size_t next_ = 0;
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> early_;
  };

  static void join(Symbol& left, const Symbol& right, const Joint& joint) {
    left.bytes += right.bytes;
    left.id = joint.id;
  }

  struct Link {
    std::uint32_t previous, next;  // beyond the count: none
  };
  std::vector<Joint> joints_;
  std::vector<Link> links_;
  std::map<std::uint32_t, Queue> queues_;  // by order
};

}  // namespace ingot::tokenizer
