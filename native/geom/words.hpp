// Words of texts: what their readers share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/numbers.hpp"
#include "geom/problem.hpp"

namespace oocdnn {

// The largest size in a problem string, so that sums of a few of them cannot overflow.
constexpr int64_t kLargestInText = int64_t{1} << 60;

inline std::vector<std::string_view> SplitWords(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  std::vector<std::string_view> words;
  for (size_t at = text.find_first_not_of(kSpaces); at != text.npos;) {
    const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpaces, end);
  }
  return words;
}

// The word in quotes, cut where it is long: for error messages.
inline std::string Quoted(std::string_view word) {
  constexpr size_t kLongest = 60;
  const bool long_word = word.size() > kLongest;
  return "\"" + std::string(word.substr(0, kLongest)) + (long_word ? "...\"" : "\"");
}

// The activations' words, by the value of Activation; kIdentity has none.
struct ActivationWord {
  const char* name;
  bool has_parameter;
};
inline constexpr ActivationWord kActivationWords[kActivations] = {
#define OOC_ROW(name, number, word, example, parameter, smooth) {word, parameter},
    OOC_ACTIVATIONS(OOC_ROW)
#undef OOC_ROW
};

// The pools' words, by the value of PoolMode; kNone has none.
inline constexpr const char* kPoolWords[kPoolModes] = {"", "maxpool", "avgpool", "avgpoolin"};

}  // namespace oocdnn
