// What shared_code.py must find: a template outside of the namespace of an instruction set.
namespace {
template <class T>
[[gnu::noinline]] T own(T value) {
  return value + 1;
}
}  // namespace

template <class T>
[[gnu::noinline]] T shared(T value) {
  return own(value) * 3;
}

int use(int value) { return shared(value); }
