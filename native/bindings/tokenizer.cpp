#include "tokenizer/tokenizer.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/gil.h"
#include "executor/parallel_for.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace nb = nanobind;

namespace {

namespace tk = ingot::tokenizer;

template <class T>
using Flat = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> span_of(const Flat<T>& array) {
  return {array.data(), array.size()};
}

// A vocabulary and the arrays it looks into.
class Vocabulary {
 public:
  Vocabulary(Flat<uint8_t> data, Flat<uint64_t> offsets, std::optional<Flat<float>> scores,
             std::optional<Flat<int32_t>> types)
      : data_(data),
        offsets_(offsets),
        scores_(scores),
        native(tk::Strings(span_of(data), span_of(offsets)),
               scores ? span_of(*scores) : std::span<const float>{},
               types ? span_of(*types) : std::span<const int32_t>{}) {}

 private:
  Flat<uint8_t> data_;
  Flat<uint64_t> offsets_;
  std::optional<Flat<float>> scores_;

 public:
  tk::Vocabulary native;

  tk::Id checked(int64_t id) const {
    if (id < 0 || id >= static_cast<int64_t>(native.size())) {
      throw std::invalid_argument("token id " + std::to_string(id) +
                                  " is not in the vocabulary: it has ids 0 to " +
                                  std::to_string(static_cast<int64_t>(native.size()) - 1));
    }
    return static_cast<tk::Id>(id);
  }

  std::vector<tk::Id> ids_of_type(int type) const {
    std::vector<tk::Id> ids;
    for (size_t id = 0; id < native.size(); ++id) {
      if (static_cast<int>(native.type(static_cast<tk::Id>(id))) == type) {
        ids.push_back(static_cast<tk::Id>(id));
      }
    }
    return ids;
  }
};

// The UTF-8 of a str or the content of bytes, valid as long as the object lives.
std::string_view view_of(nb::handle text) {
  Py_ssize_t size = 0;
  if (PyUnicode_Check(text.ptr())) {
    const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (data == nullptr) {
      PyErr_Clear();
      throw std::invalid_argument("text contains unpaired surrogates (invalid Unicode)");
    }
    return {data, static_cast<size_t>(size)};
  }
  char* data = nullptr;
  if (!PyBytes_Check(text.ptr()) || PyBytes_AsStringAndSize(text.ptr(), &data, &size) != 0) {
    throw std::invalid_argument(std::string("the text must be str or bytes, not ") +
                                nb::inst_name(text).c_str());
  }
  return {data, static_cast<size_t>(size)};
}

constexpr size_t kLongestText = size_t{1} << 31;
constexpr size_t kTurn = 1 << 16;  // ids: about a millisecond

std::string_view checked_text(nb::handle text) {
  const std::string_view view = view_of(text);
  if (view.size() >= kLongestText) throw std::invalid_argument("the text is over 2 GiB long");
  return view;
}

// Sorted byte ranges; those of a str come in counted in characters.
std::vector<tk::Span> spans_of(nb::handle text, std::string_view view,
                               const std::vector<std::pair<size_t, size_t>>& ranges) {
  std::vector<tk::Span> spans;
  for (const auto& [begin, end] : ranges) {
    if (begin > end) throw std::invalid_argument("a plain span ends before it begins");
    if (begin < end) spans.push_back({begin, end});
  }
  std::sort(spans.begin(), spans.end(),
            [](const tk::Span& a, const tk::Span& b) { return a.begin < b.begin; });
  std::vector<tk::Span> merged;
  for (const tk::Span& span : spans) {
    if (!merged.empty() && span.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back(span);
    }
  }
  const bool characters = PyUnicode_Check(text.ptr());
  const size_t length =
      characters ? static_cast<size_t>(PyUnicode_GetLength(text.ptr())) : view.size();
  if (!merged.empty() && merged.back().end > length) {
    throw std::invalid_argument("a plain span ends behind the text");
  }
  if (!characters || length == view.size()) return merged;
  size_t character = 0, byte = 0;
  const auto byte_of = [&](size_t wanted) {
    for (; character < wanted; ++character) {
      do ++byte;
      while (byte < view.size() && (static_cast<uint8_t>(view[byte]) & 0xC0) == 0x80);
    }
    return byte;
  };
  for (tk::Span& span : merged) {
    span.begin = byte_of(span.begin);
    span.end = byte_of(span.end);
  }
  return merged;
}

// Other threads get a turn now and then: the ids of a long text are many.
nb::object list_of(const std::vector<tk::Id>& ids) {
  nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(ids.size())));
  if (!list.is_valid()) nb::raise_python_error();
  for (size_t i = 0; i < ids.size(); ++i) {
    PyObject* number = PyLong_FromLong(ids[i]);
    if (number == nullptr) nb::raise_python_error();
    PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(i), number);  // takes the reference
    if ((i + 1) % kTurn == 0) ingot::GilRelease unlocked;
  }
  return list;
}

// Gives the vector to NumPy without copying it.
nb::object array_of(std::vector<tk::Id>&& ids) {
  auto* owned = new std::vector<tk::Id>(std::move(ids));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<tk::Id>*>(p); });
  return nb::cast(
      nb::ndarray<nb::numpy, tk::Id, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

// A vocabulary kind over a vocabulary, which it keeps alive (nb::keep_alive below).
struct Model {
  std::shared_ptr<const tk::Model> native;
};

class Tokenizer {
 public:
  Tokenizer(const Vocabulary& vocabulary, const Model& model, std::vector<tk::Id> before,
            std::vector<tk::Id> after, std::vector<tk::Id> strip_left,
            std::vector<tk::Id> strip_right)
      : vocabulary_(vocabulary),
        native_(vocabulary.native, model.native, {std::move(strip_left), std::move(strip_right)},
                {std::move(before), std::move(after)}) {}

  nb::object encode(nb::handle text, bool add_special, bool parse_special,
                    const std::vector<std::pair<size_t, size_t>>& plain_spans) const {
    return list_of(ids_of(text, add_special, parse_special, plain_spans));
  }

  nb::object encode_array(nb::handle text, bool add_special, bool parse_special) const {
    return array_of(ids_of(text, add_special, parse_special, {}));
  }

  nb::list encode_batch(nb::sequence texts, bool add_special, bool parse_special,
                        int threads) const {
    std::vector<nb::object> held;  // keeps the bytes alive whatever happens to the sequence
    std::vector<std::string_view> views;
    for (nb::handle text : texts) {
      held.push_back(nb::borrow(text));
      views.push_back(checked_text(text));
    }
    std::vector<std::vector<tk::Id>> ids(views.size());
    {
      ingot::GilRelease unlocked;
      ingot::parallel_for(
          static_cast<int64_t>(views.size()), 1, threads, [&](int64_t begin, int64_t end) {
            for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
              ids[i] = native_.encode({views[i], add_special, parse_special, {}});
            }
          });
    }
    nb::list lists;
    for (const std::vector<tk::Id>& one : ids) lists.append(list_of(one));
    return lists;
  }

  nb::bytes decode(nb::sequence ids, bool skip_special) const {
    std::vector<tk::Id> checked;
    for (nb::handle id : ids) {
      const nb::object number = nb::steal(PyNumber_Index(id.ptr()));
      if (!number.is_valid()) {
        PyErr_Clear();
        throw std::invalid_argument(std::string("token ids must be integers, not ") +
                                    nb::inst_name(id).c_str());
      }
      int overflow = 0;
      const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
      checked.push_back(vocabulary_.checked(overflow > 0   ? INT64_MAX
                                            : overflow < 0 ? INT64_MIN
                                                           : value));
    }
    const std::string text = native_.decode(checked, skip_special);
    return nb::bytes(text.data(), text.size());
  }

 private:
  std::vector<tk::Id> ids_of(nb::handle text, bool add_special, bool parse_special,
                             const std::vector<std::pair<size_t, size_t>>& plain_spans) const {
    const std::string_view view = checked_text(text);
    const std::vector<tk::Span> plain = spans_of(text, view, plain_spans);
    ingot::GilRelease unlocked;
    return native_.encode({view, add_special, parse_special, plain});
  }

  const Vocabulary& vocabulary_;
  tk::Tokenizer native_;
};

}  // namespace

void bind_tokenizer(nb::module_& module) {
  nb::class_<Vocabulary>(module, "Vocabulary")
      .def(nb::init<Flat<uint8_t>, Flat<uint64_t>, std::optional<Flat<float>>,
                    std::optional<Flat<int32_t>>>(),
           nb::arg("data"), nb::arg("offsets"), nb::arg("scores").none(), nb::arg("types").none())
      .def("__len__", [](const Vocabulary& v) { return v.native.size(); })
      .def("find", [](const Vocabulary& v,
                      nb::bytes text) { return v.native.find({text.c_str(), text.size()}); })
      .def("type", [](const Vocabulary& v,
                      int64_t id) { return static_cast<int>(v.native.type(v.checked(id))); })
      .def("set_type",
           [](Vocabulary& v, int64_t id, int type) {
             v.native.set_type(v.checked(id), static_cast<tk::TokenType>(type));
           })
      .def("ids_of_type", &Vocabulary::ids_of_type);

  nb::class_<Model>(module, "Model");
  module.def(
      "byte_bpe",
      [](const Vocabulary& vocabulary, Flat<uint8_t> merges, Flat<uint64_t> merge_offsets,
         const std::vector<std::string>& passes, bool whole_words) {
        const tk::Strings strings(span_of(merges), span_of(merge_offsets));
        const tk::BpeOptions options{{passes.begin(), passes.end()}, whole_words};
        return Model{tk::make_byte_bpe(vocabulary.native, strings, options)};
      },
      nb::arg("vocabulary"), nb::arg("merges"), nb::arg("merge_offsets"), nb::arg("passes"),
      nb::arg("whole_words"), nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(),
      nb::keep_alive<0, 3>());
  module.def(
      "character_bpe",
      [](const Vocabulary& vocabulary, Flat<uint8_t> merges, Flat<uint64_t> merge_offsets) {
        const tk::Strings strings(span_of(merges), span_of(merge_offsets));
        return Model{tk::make_character_bpe(vocabulary.native, strings)};
      },
      nb::arg("vocabulary"), nb::arg("merges"), nb::arg("merge_offsets"), nb::keep_alive<0, 1>(),
      nb::keep_alive<0, 2>(), nb::keep_alive<0, 3>());
  module.def(
      "sentencepiece",
      [](const Vocabulary& vocabulary, bool space_prefix, tk::Id unknown) {
        return Model{tk::make_sentencepiece(vocabulary.native, space_prefix, unknown)};
      },
      nb::arg("vocabulary"), nb::arg("space_prefix"), nb::arg("unknown"), nb::keep_alive<0, 1>());

  module.def(
      "word_piece",
      [](const Vocabulary& vocabulary, bool lower_case, bool strip_accents, tk::Id unknown) {
        return Model{tk::make_word_piece(vocabulary.native, {lower_case, strip_accents, unknown})};
      },
      nb::arg("vocabulary"), nb::arg("lower_case"), nb::arg("strip_accents"), nb::arg("unknown"),
      nb::keep_alive<0, 1>());
  module.def(
      "unigram",
      [](const Vocabulary& vocabulary, Flat<uint8_t> charsmap, bool space_prefix, bool merge_spaces,
         tk::Id unknown) {
        return Model{tk::make_unigram(vocabulary.native,
                                      {span_of(charsmap), space_prefix, merge_spaces, unknown})};
      },
      nb::arg("vocabulary"), nb::arg("charsmap"), nb::arg("space_prefix"), nb::arg("merge_spaces"),
      nb::arg("unknown"), nb::keep_alive<0, 1>());
  module.def(
      "rwkv",
      [](const Vocabulary& vocabulary, tk::Id unknown) {
        return Model{tk::make_rwkv(vocabulary.native, unknown)};
      },
      nb::arg("vocabulary"), nb::arg("unknown"), nb::keep_alive<0, 1>());

  module.def(
      "split_words",
      [](nb::bytes text, const std::vector<std::string>& passes) {
        std::string storage;
        const std::string_view view = tk::canonical_utf8({text.c_str(), text.size()}, storage);
        const auto* begin = reinterpret_cast<const tk::Byte*>(view.data());
        nb::list words;
        tk::Splitter({passes.begin(), passes.end()})
            .split(begin, begin + view.size(), [&](const tk::Byte* from, const tk::Byte* to) {
              words.append(nb::bytes(from, static_cast<size_t>(to - from)));
            });
        return words;
      },
      nb::arg("text"), nb::arg("passes"), "The words that byte-level BPE merges each by itself.");

  nb::class_<Tokenizer>(module, "Tokenizer")
      .def(nb::init<const Vocabulary&, const Model&, std::vector<tk::Id>, std::vector<tk::Id>,
                    std::vector<tk::Id>, std::vector<tk::Id>>(),
           nb::arg("vocabulary"), nb::arg("model"), nb::arg("before"), nb::arg("after"),
           nb::arg("strip_left"), nb::arg("strip_right"), nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>())
      .def("encode", &Tokenizer::encode, nb::arg("text").none(), nb::arg("add_special"),
           nb::arg("parse_special"), nb::arg("plain_spans"))
      .def("encode_array", &Tokenizer::encode_array, nb::arg("text").none(), nb::arg("add_special"),
           nb::arg("parse_special"))
      .def("encode_batch", &Tokenizer::encode_batch, nb::arg("texts"), nb::arg("add_special"),
           nb::arg("parse_special"), nb::arg("threads"))
      .def("decode", &Tokenizer::decode, nb::arg("ids"), nb::arg("skip_special"));
}
