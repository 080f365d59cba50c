#include "tokenizer/special.h"

#include <algorithm>

namespace ingot::tokenizer {
namespace {

// isspace() of the C locale.
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool contains(const std::vector<Id>& ids, Id id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool overlaps(std::span<const Span> spans, std::size_t begin, std::size_t end) {
  const auto after =
      std::upper_bound(spans.begin(), spans.end(), begin,
                       [](std::size_t place, const Span& span) { return place < span.end; });
  return after != spans.end() && after->begin < end;
}

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary, const Strips& strips)
    : vocabulary_(vocabulary), strips_(strips) {
  std::array<std::vector<Id>, 2> ids;
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const Id id = static_cast<Id>(i);
    const bool always = vocabulary.type(id) == TokenType::kUserDefined;
    if (always) ids[0].push_back(id);
    if (always || vocabulary.is_control(id)) ids[1].push_back(id);
  }
  for (const std::size_t all : {0u, 1u}) {
    for (const Id id : ids[all]) index_[all].insert(vocabulary.text(id), id);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (index_[all].starts(static_cast<std::uint8_t>(byte))) leads_[all][byte] = Lead::kToken;
    }
    find_runs(ids[all], all != 0);
  }
}

// A byte that occurs only in user-defined tokens made of nothing else: Gemma has such tokens
// for up to 31 line ends, spaces and tabs, which in long runs of them all match everywhere.
void SpecialTokens::find_runs(const std::vector<Id>& ids, bool controls) {
  std::vector<Run>& runs = runs_[controls];
  runs.resize(256);
  if (!strips_.left.empty() || !strips_.right.empty()) return;
  std::array<bool, 256> mixed{};
  for (const Id id : ids) {
    const std::string_view text = vocabulary_.text(id);
    const bool uniform = !text.empty() && text.find_first_not_of(text[0]) == text.npos;
    if (uniform && vocabulary_.type(id) == TokenType::kUserDefined) {
      runs[static_cast<std::uint8_t>(text[0])].tokens.push_back({0, text.size(), id});
    } else {
      for (const char c : text) mixed[static_cast<std::uint8_t>(c)] = true;
    }
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::vector<SpecialMatch>& tokens = runs[byte].tokens;
    if (tokens.empty() || mixed[byte]) continue;
    leads_[controls][byte] = Lead::kRun;
    std::sort(tokens.begin(), tokens.end(),
              [](const SpecialMatch& a, const SpecialMatch& b) { return a.end > b.end; });
    for (std::size_t length = 0; length <= tokens[0].end; ++length) {
      std::size_t fit = 0;
      while (fit < tokens.size() && tokens[fit].end > length) ++fit;
      runs[byte].first_fit.push_back(fit);
    }
  }
}

bool SpecialTokens::strips_left(Id id) const { return contains(strips_.left, id); }
bool SpecialTokens::strips_right(Id id) const { return contains(strips_.right, id); }

bool SpecialTokens::precedes(Id a, Id b) const {
  const std::size_t left = vocabulary_.text(a).size(), right = vocabulary_.text(b).size();
  return left != right ? left > right : a < b;
}

// Tokens that overlap decide among themselves who is found: the search gathers them into
// clusters, of which each is settled alone.
struct SpecialTokens::Search {
  const SpecialTokens& tokens;
  std::string_view text;
  std::span<const Span> plain;
  std::vector<SpecialMatch> found;

  Span cluster{0, 0};
  std::vector<Id> ids;  // the different tokens of the cluster

  bool allowed(Id id, std::size_t at) const {
    return !tokens.vocabulary_.is_control(id) ||
           !overlaps(plain, at, at + tokens.vocabulary_.text(id).size());
  }

  void add(Id id, std::size_t at, std::size_t bytes) {
    Span place{at, at + bytes};
    if (!tokens.strips_.left.empty() || !tokens.strips_.right.empty()) {
      while (place.begin > 0 && is_blank(text[place.begin - 1])) --place.begin;
      while (place.end < text.size() && is_blank(text[place.end])) ++place.end;
    }
    if (!ids.empty() && place.begin >= cluster.end) settle();
    cluster.begin = ids.empty() ? place.begin : std::min(cluster.begin, place.begin);
    cluster.end = ids.empty() ? place.end : std::max(cluster.end, place.end);
    if (!contains(ids, id)) ids.push_back(id);
  }

  void settle() {
    std::sort(ids.begin(), ids.end(), [&](Id a, Id b) { return tokens.precedes(a, b); });
    std::vector<Span> free{cluster}, left_over;
    const std::size_t before = found.size();
    for (const Id id : ids) {
      left_over.clear();
      for (const Span span : free) take(id, span, left_over);
      free.swap(left_over);
    }
    std::sort(found.begin() + static_cast<std::ptrdiff_t>(before), found.end(),
              [](const SpecialMatch& a, const SpecialMatch& b) { return a.begin < b.begin; });
    ids.clear();
  }

  // Every place of one token in a free stretch; what stays free goes to `left_over`.
  void take(Id id, Span span, std::vector<Span>& left_over) {
    const std::string_view wanted = tokens.vocabulary_.text(id);
    const std::string_view stretch = text.substr(0, span.end);
    for (std::size_t from = span.begin; from < span.end;) {
      const std::size_t at = stretch.find(wanted, from);
      if (at == stretch.npos) break;
      if (!allowed(id, at)) {
        from = at + 1;
        continue;
      }
      SpecialMatch match{at, at + wanted.size(), id};
      while (tokens.strips_left(id) && match.begin > span.begin && is_blank(text[match.begin - 1]))
        --match.begin;
      while (tokens.strips_right(id) && match.end < span.end && is_blank(text[match.end]))
        ++match.end;
      if (match.begin > span.begin) left_over.push_back({span.begin, match.begin});
      found.push_back(match);
      span.begin = from = match.end;
    }
    if (span.begin < span.end) left_over.push_back(span);
  }

  // A run of one byte: as many of the longest token as fit, then the next.
  std::size_t take_run(const Run& run, std::size_t at) {
    std::size_t end = at + 1;
    while (end < text.size() && text[end] == text[at]) ++end;
    while (true) {
      const std::size_t length = std::min(end - at, run.tokens[0].end);
      const std::size_t fit = run.first_fit[length];
      if (fit == run.tokens.size()) break;
      const SpecialMatch& token = run.tokens[fit];
      found.push_back({at, at + token.end, token.id});
      at += token.end;
    }
    return end;
  }
};

std::vector<SpecialMatch> SpecialTokens::find(std::string_view text, bool controls,
                                              std::span<const Span> plain) const {
  Search search{*this, text, plain, {}, {0, 0}, {}};
  const std::array<Lead, 256>& leads = leads_[controls];
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<std::uint8_t>(text[at]);
    if (leads[byte] == Lead::kNone) {
      ++at;
      continue;
    }
    if (leads[byte] == Lead::kRun) {
      if (!search.ids.empty()) search.settle();
      at = search.take_run(runs_[controls][byte], at);
      continue;
    }
    index_[controls].each_prefix(text.substr(at), [&](Id id, std::size_t bytes) {
      if (search.allowed(id, at)) search.add(id, at, bytes);
    });
    ++at;
  }
  if (!search.ids.empty()) search.settle();
  return search.found;
}

}  // namespace ingot::tokenizer
