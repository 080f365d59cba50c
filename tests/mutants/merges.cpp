// The loop of byte-pair encoding against a plain one, for mutants of tokenizer/merge.h and
// merges.h. Exits with 1 at the first difference.
#include "tokenizer/merges.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
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

std::vector<std::string> plainly(const Rules& rules, const std::string& word) {
  std::vector<std::string> parts;
  for (const char letter : word) parts.emplace_back(1, letter);
  while (true) {
    int best = -1, lowest = 1 << 30;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const int rank = rules.rank(parts[i], parts[i + 1]);
      if (rank >= 0 && rank < lowest) best = static_cast<int>(i), lowest = rank;
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
    return merges.find(text.substr(left.start, left.bytes), text.substr(right.start, right.bytes));
  });
  const std::vector<std::string> expected = plainly(rules, word);
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
