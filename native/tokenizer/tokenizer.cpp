#include "tokenizer/tokenizer.h"

#include <utility>

namespace ingot::tokenizer {

namespace {

// Working memory that a giant word has blown up is not kept.
constexpr std::size_t kMostKept = 1 << 20;

}  // namespace

// Working memory for as long as one call takes. Nobody waits for the lock of what is kept: another
// thread may have had it when the process was forked, and would never give it back in the child.
class Tokenizer::Lease {
 public:
  explicit Lease(const Tokenizer& owner) : owner_(owner) {
    const std::unique_lock lock(owner.mutex_, std::try_to_lock);
    if (lock && !owner.idle_.empty()) {
      scratch_ = std::move(owner.idle_.back());
      owner.idle_.pop_back();
    }
  }
  ~Lease() {
    if (!scratch_ || scratch_->merger.symbols.capacity() > kMostKept) return;
    const std::unique_lock lock(owner_.mutex_, std::try_to_lock);
    if (lock) owner_.idle_.push_back(std::move(scratch_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Scratch& operator*() {
    if (!scratch_) scratch_ = std::make_unique<Scratch>();
    return *scratch_;
  }

 private:
  const Tokenizer& owner_;
  std::unique_ptr<Scratch> scratch_;
};

Tokenizer::Tokenizer(const Vocabulary& vocabulary, std::shared_ptr<const Model> model,
                     const Strips& strips, Framing framing)
    : vocabulary_(vocabulary),
      model_(std::move(model)),
      special_(vocabulary, strips),
      framing_(std::move(framing)) {}

std::vector<Id> Tokenizer::encode(const Request& request) const {
  Lease scratch(*this);
  const std::string_view text = request.text;
  std::vector<Id> ids;
  ids.reserve(text.size() / 3 + 2);
  if (request.add_special) ids = framing_.before;
  std::size_t done = 0;
  bool after_special = true;
  const auto encode_plain = [&](std::size_t end) {
    if (end == done) return;
    model_->encode(text.substr(done, end - done), after_special, *scratch, ids);
    after_special = false;
  };
  for (const SpecialMatch& match : special_.find(text, request.parse_special, request.plain)) {
    encode_plain(match.begin);
    ids.push_back(match.id);
    after_special = true;
    done = match.end;
  }
  encode_plain(text.size());
  if (request.add_special) ids.insert(ids.end(), framing_.after.begin(), framing_.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const Id> ids, bool skip_special) const {
  std::string text;
  text.reserve(ids.size() * 4);
  for (const Id id : ids) {
    if (!(skip_special && vocabulary_.is_control(id))) model_->append_bytes(id, text);
  }
  return text;
}

}  // namespace ingot::tokenizer
