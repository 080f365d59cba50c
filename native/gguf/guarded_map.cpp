#include "gguf/guarded_map.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <system_error>

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
struct sigaction previous;
uintptr_t page_size;

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
  const uintptr_t page = address & ~(page_size - 1);
  const size_t size = range->end.load(std::memory_order_relaxed) - page;
  range->damaged.store(true, std::memory_order_release);
  return mmap(reinterpret_cast<void*>(page), size, PROT_READ,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

// What would have happened without this handler.
void pass_on(int number, siginfo_t* info, void* context) {
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  } else if (const bool sent = info->si_code <= 0; !sent || previous.sa_handler == SIG_DFL) {
    sigaction(SIGBUS, &previous, nullptr);
    if (sent) raise(number);  // a fault comes again by itself
  }
}

// Only calls what POSIX allows in a handler, and mmap, which is a plain system call.
void handle(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  Range* range = info->si_code == BUS_ADRERR ? find(address) : nullptr;
  if (!range || !put_zeros(range, address)) pass_on(number, info, context);
  errno = error;
}

void install() {
  page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, nullptr, &previous) != 0 || sigaction(SIGBUS, &action, nullptr) != 0)
    throw std::system_error(errno, std::generic_category());
}

Range* add_range(uintptr_t begin, size_t size) {
  const std::lock_guard lock(changing);
  Range* range = ranges.load(std::memory_order_relaxed);
  while (range && range->begin.load(std::memory_order_relaxed) != 0) range = range->next;
  const bool is_new = range == nullptr;
  if (is_new) range = new Range;
  range->damaged.store(false, std::memory_order_relaxed);
  // Up to the end of its last page, of which a file that is cut to nothing has nothing.
  range->end.store((begin + size + page_size - 1) & ~(page_size - 1), std::memory_order_release);
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
  std::call_once(installed, install);
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) throw std::system_error(errno, std::generic_category());
  data_ = static_cast<const uint8_t*>(data);
  range_ = add_range(reinterpret_cast<uintptr_t>(data), size);
}

GuardedMap::~GuardedMap() {
  range_->begin.store(0, std::memory_order_release);
  munmap(const_cast<uint8_t*>(data_), size_);
}

bool GuardedMap::is_damaged() const { return range_->damaged.load(std::memory_order_acquire); }

void GuardedMap::prefetch() const { madvise(const_cast<uint8_t*>(data_), size_, MADV_WILLNEED); }

void GuardedMap::release(size_t bytes) const {
  madvise(const_cast<uint8_t*>(data_), std::min(bytes, size_), MADV_DONTNEED);
}

}  // namespace ingot::gguf
