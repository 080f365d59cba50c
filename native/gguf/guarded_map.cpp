#include "gguf/guarded_map.h"

#include <algorithm>
#include <mutex>

#include "system/system.h"

namespace ingot::gguf {

// An element of a list that only grows: the handler can walk it without a lock. An element whose
// map is gone (begin is 0) serves the next map.
struct GuardedMap::Range {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> damaged{false};
  Range* next = nullptr;
};

namespace {

using Range = GuardedMap::Range;

static_assert(std::atomic<uintptr_t>::is_always_lock_free &&
                  std::atomic<Range*>::is_always_lock_free,
              "a signal handler may not wait for a lock");

std::atomic<Range*> ranges{nullptr};
std::mutex changing;  // of the list; never taken by the handler

Range* find(uintptr_t address) {
  for (Range* range = ranges.load(std::memory_order_acquire); range; range = range->next) {
    const uintptr_t begin = range->begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin) continue;
    const uintptr_t end = range->end.load(std::memory_order_acquire);
    // Read again: the element may have been given to another map between the two.
    if (address < end && range->begin.load(std::memory_order_acquire) == begin) return range;
  }
  return nullptr;
}

// Puts zeros in place of the page and all after it: what follows a page that a file no longer has
// is not there either, and one map for all of them keeps the number of maps small.
bool put_zeros(Range* range, uintptr_t address) {
  const uintptr_t page = address & ~(system::page_size() - 1);
  const size_t size = range->end.load(std::memory_order_relaxed) - page;
  range->damaged.store(true, std::memory_order_release);
  return system::replace_by_zeros(page, size);
}

bool handle_unreadable(uintptr_t address) {
  Range* range = find(address);
  return range && put_zeros(range, address);
}

Range* add_range(uintptr_t begin, size_t size) {
  const std::lock_guard lock(changing);
  Range* range = ranges.load(std::memory_order_relaxed);
  while (range && range->begin.load(std::memory_order_relaxed) != 0) range = range->next;
  const bool is_new = range == nullptr;
  if (is_new) range = new Range;
  range->damaged.store(false, std::memory_order_relaxed);
  // Up to the end of its last page, of which a file that is cut to nothing has nothing.
  const uintptr_t page = system::page_size();
  range->end.store((begin + size + page - 1) & ~(page - 1), std::memory_order_release);
  range->begin.store(begin, std::memory_order_release);
  if (is_new) {
    range->next = ranges.load(std::memory_order_relaxed);
    ranges.store(range, std::memory_order_release);
  }
  return range;
}

}  // namespace

GuardedMap::GuardedMap(int descriptor, size_t size) : size_(size) {
  static std::once_flag installed;
  std::call_once(installed, system::on_unreadable_page, handle_unreadable);
  data_ = system::map_file(descriptor, size);
  range_ = add_range(reinterpret_cast<uintptr_t>(data_), size);
}

GuardedMap::~GuardedMap() {
  range_->begin.store(0, std::memory_order_release);
  system::unmap_file(data_, size_);
}

bool GuardedMap::is_damaged() const { return range_->damaged.load(std::memory_order_acquire); }

void GuardedMap::prefetch() const { system::prefetch(data_, size_); }

void GuardedMap::release(size_t bytes) const { system::release(data_, std::min(bytes, size_)); }

}  // namespace ingot::gguf
