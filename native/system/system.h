// All that the core asks of the operating system, beside what C++ has (threads, clocks, and
// std::atomic's waiting, which the standard library builds on futex, ulock or WaitOnAddress).
//
// system.cpp does it for Linux, macOS and Windows; no other file calls the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ingot::system {

// The number of this process; another one in a fork.
int64_t process_id();

// Has a function called in every fork of this process, where there are forks.
void call_in_forks(void (*function)());

// Maps the beginning of an open file for reading. Throws std::system_error.
const uint8_t* map_file(int descriptor, size_t size);
void unmap_file(const uint8_t* data, size_t size);

// Asks for a mapped file to be read ahead of its use; nothing waits for it.
void prefetch(const uint8_t* data, size_t size);

// Gives back the memory of a mapped file; whoever uses it again has it read again.
void release(const uint8_t* data, size_t size);

// Memory that reads as zeros until it is written, in huge pages if the system has them. Throws
// std::bad_alloc.
uint8_t* allocate_pages(size_t size);
void free_pages(uint8_t* data, size_t size);

// Asks for the pages that lie wholly in a range, and are not written yet, to come from a NUMA node.
// Linux alone; elsewhere, or if the node has no room, they come from anywhere.
void prefer_node(uint8_t* data, size_t size, int node);

// The CPUs that a thread may run on, as a set of up to 4096.
struct CpuSet {
  uint64_t words[64] = {};
};

// The set of some numbers; larger ones are left out.
CpuSet cpu_set(const std::vector<int>& cpus);

// Where the calling thread may run, and keeping it there. Linux alone; false: it runs anywhere.
bool thread_cpus(CpuSet& cpus);
bool keep_thread_to(const CpuSet& cpus);

// Bytes of a page.
uintptr_t page_size();

// Calls a function with the address of a mapped page that could not be read; if it returns false,
// the process ends as it would have. The function may only use what a signal handler may. Windows
// has no such faults: a file that is mapped cannot be cut short there. Throws std::system_error.
void on_unreadable_page(bool (*handle)(uintptr_t address));

// Puts zeros in place of mapped pages; may be called by such a function.
bool replace_by_zeros(uintptr_t page, size_t size);

// Asks for the tile registers of AMX, which Linux gives only to those who ask.
bool request_tiles();

// Names of what an ARM CPU has beyond ARMv8.0: "fp16", "dotprod", "i8mm", as the system says.
std::vector<std::string> arm_features();

}  // namespace ingot::system
