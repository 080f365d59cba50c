// GilRelease: lets other Python threads run for as long as it lives, like nb::gil_scoped_release,
// and does not come back while the interpreter ends.
//
// CPython before 3.14 ends a thread that asks for the GIL then by unwinding its stack. C++ takes
// that for an exception which nobody catches, and aborts the process. Such a thread sleeps here
// instead until the process is gone.
#pragma once

#include <nanobind/nanobind.h>

namespace ingot {

class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

// Calls, once Python runs what is registered with atexit, for all other threads to stay away.
void keep_threads_away_at_exit(nanobind::module_& module);

}  // namespace ingot
