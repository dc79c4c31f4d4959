// Conversion between numbers and text, independent of the locales of the embedding program: its
// decimal separator may be a comma. All of native/ converts with these functions or, through printf
// formats, with FormatTo (tests/lint/test_locale.py).
#pragma once

#include <charconv>
#include <cstdarg>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

namespace oocdnn {

// Reads all of `text` as a number; false where anything else is in it.
template <class Number>
bool ReadNumber(std::string_view text, Number* number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stop == end && !text.empty();
}

// Removes a non-negative decimal number from the front of `text`, with the spaces and the '+'
// before it; false where there is none.
bool TakeNumber(std::string_view* text, double* number);

// The shortest text that reads back as the same number.
template <class Number>
std::string NumberText(Number number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

// vsnprintf in the C locale.
[[gnu::format(printf, 3, 0)]] int FormatTo(char* text, size_t bytes, const char* format,
                                           va_list arguments);

}  // namespace oocdnn
