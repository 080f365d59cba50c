// The loop of byte-pair encoding against a plain one, for mutants of tokenizer/merge.h and
// merges.h. Exits with 1 at the first difference.
#include "tokenizer/merges.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

using namespace ingot::tokenizer;

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

std::uint32_t random_below(std::uint32_t n) {
  static std::uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<std::uint32_t>(state >> 33) % n;
}

// The merges of a vocabulary as a file has them: a length of eight bytes before each.
struct Rules {
  std::vector<std::string> texts;
  std::vector<std::uint8_t> data;
  std::vector<std::uint64_t> offsets;

  explicit Rules(std::vector<std::string> given) : texts(std::move(given)) {
    for (const std::string& text : texts) {
      offsets.push_back(data.size());
      const std::uint64_t size = text.size();
      data.resize(data.size() + 8);
      std::memcpy(data.data() + data.size() - 8, &size, 8);
      data.insert(data.end(), text.begin(), text.end());
    }
  }
  Strings strings() const { return {data, offsets}; }

  // The first merge that joins these texts, or -1.
  int rank(const std::string& left, const std::string& right) const {
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (texts[i] == left + " " + right) return static_cast<int>(i);
    return -1;
  }
};

// Which of two neighbouring texts are joined first; a negative order: never.
using Order = std::function<int(const std::string& left, const std::string& right)>;

std::vector<std::string> plainly(const Order& order_of, const std::string& word) {
  std::vector<std::string> parts;
  for (const char letter : word) parts.emplace_back(1, letter);
  while (true) {
    int best = -1, lowest = 1 << 30;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const int order = order_of(parts[i], parts[i + 1]);
      if (order >= 0 && order < lowest) best = static_cast<int>(i), lowest = order;
    }
    if (best < 0) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + best + 1);
  }
}

std::vector<Symbol> letters_of(const std::string& word) {
  std::vector<Symbol> symbols;
  for (std::uint32_t i = 0; i < word.size(); ++i)
    symbols.push_back({i, 1, static_cast<Id>(static_cast<unsigned char>(word[i]))});
  return symbols;
}

// A merger that ran out of memory in the middle of a word, with pairs left to join.
Merger broken_off() {
  Merger merger;
  merger.symbols = letters_of(std::string(150, 'a'));
  int calls = 0;
  try {
    merger.merge([&](const Symbol&, const Symbol&) {
      if (++calls > 160) throw std::bad_alloc();
      return Joint{0, kFirstMerge};
    });
  } catch (const std::bad_alloc&) {
  }
  require(calls > 160, "it did not break off");
  return merger;
}

void compare(const Rules& rules, const Merges& merges, const std::string& word, Merger merger) {
  merger.symbols = letters_of(word);
  const std::string_view text = word;
  merger.merge([&](const Symbol& left, const Symbol& right) {
    require(left.start + left.bytes == right.start, "these are no neighbours");
    return merges.find(text.substr(left.start, left.bytes), text.substr(right.start, right.bytes));
  });
  const auto rank = [&](const std::string& left, const std::string& right) {
    return rules.rank(left, right);
  };
  const std::vector<std::string> expected = plainly(rank, word);
  require(merger.symbols.size() == expected.size(), "another number of symbols");
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Symbol& symbol = merger.symbols[i];
    require(text.substr(symbol.start, symbol.bytes) == expected[i], "another symbol");
    if (expected[i].size() > 1) {
      const auto rank = static_cast<std::uint32_t>(symbol.id) - kFirstMerge;
      require(rank < merges.size(), "the id is no merge's");
      const auto [left, right] = merges.halves(rank);
      require(std::string(left) + std::string(right) == expected[i], "the id of another merge");
    } else {
      require(symbol.id == static_cast<unsigned char>(expected[i][0]), "another id of a byte");
    }
  }
}

// As SentencePiece joins: pairs of other texts may have the same order, and what is found late may
// stand before what was found early. The id of a symbol is how many letters it has.
void compare_ties(const std::string& word, int orders, Merger merger) {
  const Order order_of = [&](const std::string& left, const std::string& right) {
    if (left.size() + right.size() > 6) return -1;
    const std::size_t spread = hash_bytes(left + right) >> 40;
    return spread % 3 == 0 ? -1 : static_cast<int>(spread % static_cast<std::size_t>(orders));
  };
  merger.symbols = letters_of(word);
  for (Symbol& symbol : merger.symbols) symbol.id = 1;
  merger.merge([&](const Symbol& left, const Symbol& right) {
    require(left.start + left.bytes == right.start, "these are no neighbours");
    const int order =
        order_of(word.substr(left.start, left.bytes), word.substr(right.start, right.bytes));
    return order < 0 ? Joint{} : Joint{static_cast<std::uint32_t>(order), left.id + right.id};
  });
  const std::vector<std::string> expected = plainly(order_of, word);
  require(merger.symbols.size() == expected.size(), "another number of symbols with ties");
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Symbol& symbol = merger.symbols[i];
    require(word.substr(symbol.start, symbol.bytes) == expected[i], "another symbol with ties");
    require(symbol.id == static_cast<Id>(expected[i].size()), "another id with ties");
  }
}

// Two merges that an index of two can tell apart by their texts alone.
void compare_alike(const std::string& left, const std::string& right, const std::string& left2,
                   const std::string& right2) {
  const auto hash = [](const std::string& a, const std::string& b) {
    return hash_bytes(a) * 3 + hash_bytes(b);
  };
  const std::uint64_t differ = hash(left, right) ^ hash(left2, right2);
  require(differ >> 32 == 0 && differ % 8 == 0, "these hashes differ: look for others");
  const Rules rules({left + " " + right, left2 + " " + right2});
  const Merges merges(rules.strings());
  require(merges.find(left, right).order == 0, "the first of two alike");
  require(merges.find(left2, right2).order == 1, "the second of two alike");
  const Rules one({left + " " + right});
  require(Merges(one.strings()).find(left2, right2).order == Joint::kNever, "none of one alike");
}

}  // namespace

int main() {
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t letters = 1 + random_below(4);
    std::vector<std::string> pieces, merges;
    for (std::uint32_t i = 0; i < letters; ++i) pieces.emplace_back(1, static_cast<char>('a' + i));
    for (std::uint32_t i = random_below(25); i > 0; --i) {
      const std::string left = pieces[random_below(static_cast<std::uint32_t>(pieces.size()))];
      const std::string right = pieces[random_below(static_cast<std::uint32_t>(pieces.size()))];
      merges.push_back(left + " " + right);
      if (left.size() + right.size() < 9) pieces.push_back(left + right);
    }
    const Rules rules(merges);
    const Merges found(rules.strings());
    require(found.size() == merges.size(), "another number of merges");
    require(found.symbols() == kFirstMerge + merges.size(), "another number of symbols in all");
    for (const std::uint32_t length : {0u, 1u, 2u, 3u, 7u, 30u, 99u, 100u, 101u, 102u, 240u}) {
      std::string word;
      while (word.size() < length) word += static_cast<char>('a' + random_below(letters));
      compare(rules, found, word, {});
      compare(rules, found, word, broken_off());
    }
  }
  for (int round = 0; round < 12; ++round) {
    const std::uint32_t letters = 1 + random_below(4);
    for (const std::uint32_t length : {2u, 5u, 40u, 100u, 101u, 240u}) {
      std::string word;
      while (word.size() < length) word += static_cast<char>('a' + random_below(letters));
      compare_ties(word, 1 + round % 5, {});
      compare_ties(word, 1 + round % 5, broken_off());
    }
  }
  compare_alike("x", "qwcha", "x", "vdxja");
  compare_alike("rhlfa", "x", "ofwsa", "x");
  // Texts that have spaces, merges that have none, and merges that begin with one.
  const Rules odd({"a b", "ab", " a", "  a", "a  ", "b c", "a bc"});
  const Merges merges(odd.strings());
  require(merges.find("a", "b").order == 0, "a b");
  require(merges.find("ab", "").order == Joint::kNever, "ab and nothing");
  require(merges.find("", "ab").order == Joint::kNever, "nothing and ab");
  require(merges.find("b", "a").order == Joint::kNever, "b a");
  require(merges.find("a", "bc").order == 6, "a bc");
  require(merges.find("ab", "c").order == Joint::kNever, "ab c");
  require(merges.find("a", " ").order == 4, "a and a space");
  require(merges.find(" ", "a").order == 3, "a space and a");
  require(merges.halves(1).first.empty() && merges.halves(1).second == "ab", "no left half");
  require(merges.halves(3).first == " " && merges.halves(3).second == "a", "a space first");
  require(merges.halves(4).first == "a" && merges.halves(4).second == " ", "a space last");
  return 0;
}
