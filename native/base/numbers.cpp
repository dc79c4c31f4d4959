#include "base/numbers.hpp"

#include <locale.h>  // NOLINT: uselocale is declared in POSIX's header

#include <algorithm>
#include <cstdio>

namespace oocdnn {
namespace {

// The C locale in this thread. Nothing is allocated: glibc returns a static object.
class InCLocale {
 public:
  InCLocale() : before_(uselocale(TheCLocale())) {}
  ~InCLocale() { uselocale(before_); }
  InCLocale(const InCLocale&) = delete;
  InCLocale& operator=(const InCLocale&) = delete;

 private:
  static locale_t TheCLocale() {
    static const locale_t c = newlocale(LC_ALL_MASK, "C", nullptr);
    return c;
  }
  const locale_t before_;
};

}  // namespace

bool TakeNumber(std::string_view* text, double* number) {
  std::string_view rest = *text;
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t\n\v\f\r"), rest.size()));
  if (rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.starts_with('-')) return false;
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), *number);
  if (error != std::errc()) return false;
  rest.remove_prefix(static_cast<size_t>(stop - rest.data()));
  *text = rest;
  return true;
}

int FormatTo(char* text, size_t bytes, const char* format, va_list arguments) {
  const InCLocale here;
  return std::vsnprintf(text, bytes, format, arguments);
}

}  // namespace oocdnn
