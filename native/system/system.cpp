#include "system/system.h"

#include <cerrno>
#include <new>
#include <system_error>

#if defined(_WIN32)
#include <io.h>
#include <windows.h>
// After windows.h, which both need.
#include <memoryapi.h>
#include <processthreadsapi.h>
#else
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#if defined(__linux__)
#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace ingot::system {

CpuSet cpu_set(const std::vector<int>& cpus) {
  CpuSet set;
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < static_cast<int>(8 * sizeof(set.words)))
      set.words[cpu / 64] |= uint64_t{1} << cpu % 64;
  return set;
}

#if defined(_WIN32)

namespace {

// In the terms of errno, which is what Python makes an OSError of.
[[noreturn]] void throw_error(DWORD code) {
  const std::error_code error(static_cast<int>(code), std::system_category());
  throw std::system_error(error.default_error_condition().value(), std::generic_category());
}

}  // namespace

int64_t process_id() { return GetCurrentProcessId(); }

void call_in_forks(void (*)()) {}

const uint8_t* map_file(int descriptor, size_t size) {
  const auto file = reinterpret_cast<HANDLE>(_get_osfhandle(descriptor));
  const HANDLE mapping = CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (!mapping) throw_error(GetLastError());
  const void* data = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, size);
  const DWORD error = GetLastError();
  CloseHandle(mapping);  // the view keeps it
  if (!data) throw_error(error);
  return static_cast<const uint8_t*>(data);
}

void unmap_file(const uint8_t* data, size_t) { UnmapViewOfFile(data); }

void prefetch(const uint8_t* data, size_t size) {
  WIN32_MEMORY_RANGE_ENTRY range{const_cast<uint8_t*>(data), size};
  PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}

void release(const uint8_t* data, size_t size) {
  VirtualUnlock(const_cast<uint8_t*>(data), size);  // of pages that are not locked: it drops them
}

uint8_t* allocate_pages(size_t size) {
  void* pages = VirtualAlloc(nullptr, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (!pages) throw std::bad_alloc();
  return static_cast<uint8_t*>(pages);
}

void free_pages(uint8_t* data, size_t) { VirtualFree(data, 0, MEM_RELEASE); }

void prefer_node(uint8_t*, size_t, int) {}

bool thread_cpus(CpuSet&) { return false; }

bool keep_thread_to(const CpuSet&) { return false; }

uintptr_t page_size() {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}

void on_unreadable_page(bool (*)(uintptr_t)) {}

bool replace_by_zeros(uintptr_t, size_t) { return false; }

#else

int64_t process_id() { return getpid(); }

void call_in_forks(void (*function)()) { pthread_atfork(nullptr, nullptr, function); }

const uint8_t* map_file(int descriptor, size_t size) {
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) throw std::system_error(errno, std::generic_category());
  return static_cast<const uint8_t*>(data);
}

void unmap_file(const uint8_t* data, size_t size) { munmap(const_cast<uint8_t*>(data), size); }

void prefetch(const uint8_t* data, size_t size) {
#if defined(MADV_HUGEPAGE)
  madvise(const_cast<uint8_t*>(data), size, MADV_HUGEPAGE);
#endif
  madvise(const_cast<uint8_t*>(data), size, MADV_WILLNEED);
}

void release(const uint8_t* data, size_t size) {
  madvise(const_cast<uint8_t*>(data), size, MADV_DONTNEED);
}

uint8_t* allocate_pages(size_t size) {
  void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  madvise(pages, size, MADV_HUGEPAGE);
#endif
  return static_cast<uint8_t*>(pages);
}

void free_pages(uint8_t* data, size_t size) { munmap(data, size); }

#if defined(__linux__)

void prefer_node(uint8_t* data, size_t size, int node) {
  constexpr long kPreferred = 1;  // MPOL_PREFERRED
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  const uintptr_t page = page_size(),
                  begin = (reinterpret_cast<uintptr_t>(data) + page - 1) & -page,
                  end = (reinterpret_cast<uintptr_t>(data) + size) & -page;
  if (node < 0 || begin >= end) return;
  std::vector<unsigned long> mask(node / kBits + 1);
  mask.back() = 1ul << node % kBits;
  syscall(SYS_mbind, begin, end - begin, kPreferred, mask.data(), mask.size() * kBits + 1, 0ul);
}

// cpu_set_t is an array of words of bits, as CpuSet is.
bool thread_cpus(CpuSet& cpus) {
  return sched_getaffinity(0, sizeof(cpus.words), reinterpret_cast<cpu_set_t*>(cpus.words)) == 0;
}

bool keep_thread_to(const CpuSet& cpus) {
  return sched_setaffinity(0, sizeof(cpus.words), reinterpret_cast<const cpu_set_t*>(cpus.words)) ==
         0;
}

#else

void prefer_node(uint8_t*, size_t, int) {}

bool thread_cpus(CpuSet&) { return false; }

bool keep_thread_to(const CpuSet&) { return false; }

#endif

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

namespace {

struct sigaction previous;
bool (*handle_unreadable)(uintptr_t);

// What would have happened without our handler.
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

void handle_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const bool is_fault = info->si_code == BUS_ADRERR;
  if (!is_fault || !handle_unreadable(reinterpret_cast<uintptr_t>(info->si_addr)))
    pass_on(number, info, context);
  errno = error;
}

}  // namespace

void on_unreadable_page(bool (*handle)(uintptr_t address)) {
  handle_unreadable = handle;
  struct sigaction action = {};
  action.sa_sigaction = handle_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, nullptr, &previous) != 0 || sigaction(SIGBUS, &action, nullptr) != 0)
    throw std::system_error(errno, std::generic_category());
}

// POSIX does not list mmap among what a handler may call, but it is a plain system call.
bool replace_by_zeros(uintptr_t page, size_t size) {
  return mmap(reinterpret_cast<void*>(page), size, PROT_READ,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

#endif

bool request_tiles() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

namespace {

struct ArmFeature {
  const char* name;
  int word, bit;         // of Linux' AT_HWCAP (0) and AT_HWCAP2 (1)
  const char* of_macos;  // a name of sysctl
  int of_windows;        // a number of IsProcessorFeaturePresent
};

// Every CPU that Windows runs on has half floats if it has dot products.
constexpr ArmFeature kArmFeatures[] = {{"fp16", 0, 10, "hw.optional.arm.FEAT_FP16", 43},
                                       {"dotprod", 0, 20, "hw.optional.arm.FEAT_DotProd", 43},
                                       {"i8mm", 1, 13, "hw.optional.arm.FEAT_I8MM", 66}};

bool has([[maybe_unused]] const ArmFeature& feature) {
#if !defined(__aarch64__)
  return false;
#elif defined(__linux__)
  return getauxval(feature.word == 0 ? AT_HWCAP : AT_HWCAP2) >> feature.bit & 1;
#elif defined(__APPLE__)
  int present = 0;
  size_t size = sizeof(present);
  return sysctlbyname(feature.of_macos, &present, &size, nullptr, 0) == 0 && present;
#elif defined(_WIN32)
  return IsProcessorFeaturePresent(feature.of_windows);
#else
  return false;
#endif
}

}  // namespace

std::vector<std::string> arm_features() {
  std::vector<std::string> found;
  for (const ArmFeature& feature : kArmFeatures)
    if (has(feature)) found.push_back(feature.name);
  return found;
}

}  // namespace ingot::system
