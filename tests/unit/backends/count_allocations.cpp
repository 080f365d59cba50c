// Put before everything else with LD_PRELOAD: counts what asks the heap for memory, on any
// thread, between count_begin() and count_end(). glibc's own functions do the work.
#include <atomic>
#include <cerrno>
#include <cstddef>

extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

static std::atomic<bool> counting{false};
static std::atomic<long> allocations{0};

static void count() {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
}

void count_begin() {
  allocations = 0;
  counting = true;
}
long count_end() {
  counting = false;
  return allocations;
}

void* malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(size_t number, size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* old, size_t size) {
  count();
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

}  // extern "C"
