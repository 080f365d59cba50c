#include "bindings/gil.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "system/system.h"

namespace nb = nanobind;

namespace ingot {
namespace {

std::atomic<bool> ending{false};
std::atomic<std::thread::id> ender;  // the thread that ends the interpreter, and has the GIL
std::atomic<int> returning{0};       // threads that are about to have the GIL again

void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void end() {
  ender = std::this_thread::get_id();
  ending = true;
  nb::gil_scoped_release unlocked;
  while (returning != 0) std::this_thread::yield();
}

}  // namespace

GilRelease::~GilRelease() {
  ++returning;  // first: end() either waits for this thread, or is seen by it
  if (ending && ender.load() != std::this_thread::get_id()) {
    --returning;
    sleep_for_ever();
  }
  PyEval_RestoreThread(state_);
  --returning;
}

void keep_threads_away_at_exit(nb::module_& module) {
  system::call_in_forks([] { returning = 0; });  // which a child has no others of
  module.def("_end", &end);
  nb::module_::import_("atexit").attr("register")(module.attr("_end"));
}

}  // namespace ingot
