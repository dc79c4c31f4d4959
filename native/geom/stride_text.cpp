#include "geom/stride_text.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "geom/words.hpp"

namespace oocdnn {
namespace {

using Numbers = std::vector<int64_t>;

// How the axes of the user's array map to six dimensions.
enum class Kind { kActivation, kFilter, kVector };

Kind KindOf(const Problem& problem, Operand operand) {
  switch (operand) {
    case Operand::kW:
    case Operand::kDw: return Kind::kFilter;
    case Operand::kDb:
    case Operand::kBias:
    case Operand::kScale: return Kind::kVector;
    case Operand::kResidual:
    case Operand::kOld: return KindOf(problem, problem.sum());
    default: return Kind::kActivation;
  }
}

// The two dimensions that are one axis of the array: group, then channel.
int MergedDimension(Kind kind) { return kind == Kind::kFilter ? 0 : 1; }

Dims LayoutStrides(Kind kind, const Dims& dims, bool channels_last) {
  if (!channels_last || kind == Kind::kVector) return DenseStrides(dims);
  if (kind == Kind::kActivation) return ChannelsLastStrides(dims);
  Dims stride{};
  int64_t next = 1;
  for (const int d : {2, 5, 4, 3, 1, 0}) {  // a channels-last filter: output channels outermost
    stride[d] = next;
    next = Mul(next, std::max<int64_t>(dims[d], 1));
  }
  return stride;
}

// What the layout word means for an operand.
Dims DefaultStrides(const Problem& problem, Operand operand, bool channels_last) {
  const Kind kind = KindOf(problem, operand);
  return LayoutStrides(kind, problem.DimsOf(operand), channels_last && kind == Kind::kActivation);
}

bool SameAddresses(const Dims& dims, const Dims& a, const Dims& b) {
  if (std::count(dims.begin(), dims.end(), 0) > 0) return true;
  for (int d = 0; d < 6; ++d) {
    if (dims[d] > 1 && a[d] != b[d]) return false;
  }
  return true;
}

// The dimensions that each axis of the array stands for, with the merged pair by its channel.
std::vector<int> ArrayAxes(Kind kind, int rank) {
  if (kind == Kind::kVector) return {2};
  std::vector<int> axes = kind == Kind::kFilter ? std::vector<int>{1, 2} : std::vector<int>{0, 2};
  for (int d = 6 - rank; d < 6; ++d) axes.push_back(d);
  return axes;
}

Dims FromArray(Kind kind, const Dims& dims, int rank, const Numbers& array) {
  const std::vector<int> axes = ArrayAxes(kind, rank);
  const int group = MergedDimension(kind);
  Dims stride{};
  for (size_t i = 0; i < axes.size(); ++i) stride[axes[i]] = array[i];
  if (__builtin_mul_overflow(stride[group + 1], dims[group + 1], &stride[group])) {
    stride[group] = kSizeMax;
  }
  return stride;
}

Numbers ToArray(Kind kind, const Dims& dims, int rank, const Dims& stride) {
  const int group = MergedDimension(kind);
  Numbers array;
  for (const int d : ArrayAxes(kind, rank)) {
    const int from = d == group + 1 && dims[d] <= 1 ? group : d;
    array.push_back(dims[from] > 1 ? stride[from] : 0);
  }
  return array;
}

std::string Joined(const Numbers& numbers) {
  std::string text;
  for (const int64_t number : numbers) {
    if (!text.empty()) text += 'x';
    text += NumberText(number);
  }
  return text;
}

// What follows the prefix; empty where the layout word says enough.
std::string StrideText(const Problem& problem, int rank, Operand operand, bool channels_last) {
  const Dims dims = problem.DimsOf(operand);
  const Dims& stride = problem.stride[Index(operand)];
  const Kind kind = KindOf(problem, operand);
  if (SameAddresses(dims, stride, DefaultStrides(problem, operand, channels_last))) return {};
  for (const bool last : {false, true}) {
    if (SameAddresses(dims, stride, LayoutStrides(kind, dims, last))) {
      return std::string(LayoutName(rank, last));
    }
  }
  const Numbers array = ToArray(kind, dims, rank, stride);
  if (SameAddresses(dims, stride, FromArray(kind, dims, rank, array))) return Joined(array);
  Numbers six;
  for (int d = 0; d < 6; ++d) six.push_back(dims[d] > 1 ? stride[d] : 0);
  return Joined(six);
}

std::vector<std::string> TextsUnder(const Problem& problem, int rank, bool channels_last) {
  std::vector<std::string> texts;
  if (channels_last) texts.emplace_back(LayoutName(rank, true));
  for (const StrideWord& word : kStrideWords) {
    if (!problem.Has(word.operand)) continue;
    const std::string text = StrideText(problem, rank, word.operand, channels_last);
    if (!text.empty()) texts.push_back(word.prefix + text);
  }
  return texts;
}

// Reads "48x16x4x1"; strides may be negative here, and Validate says what it thinks of that.
bool ReadNumbers(std::string_view text, Numbers* numbers) {
  while (true) {
    const size_t end = std::min(text.find('x'), text.size());
    int64_t number = 0;
    if (!ReadNumber(text.substr(0, end), &number)) return false;
    numbers->push_back(number);
    if (end == text.size()) return true;
    text.remove_prefix(end + 1);
  }
}

bool ReadStrideText(Kind kind, const Dims& dims, int rank, std::string_view text, Dims* stride) {
  for (const bool last : {false, true}) {
    if (text == LayoutName(rank, last)) {
      *stride = LayoutStrides(kind, dims, last);
      return true;
    }
  }
  Numbers numbers;
  if (!ReadNumbers(text, &numbers)) return false;
  if (numbers.size() == ArrayAxes(kind, rank).size()) {
    *stride = FromArray(kind, dims, rank, numbers);
    return true;
  }
  if (numbers.size() != stride->size()) return false;
  std::copy(numbers.begin(), numbers.end(), stride->begin());
  return true;
}

}  // namespace

std::string_view LayoutName(int rank, bool channels_last) {
  constexpr std::string_view kNames[3][2] = {{"ncw", "nwc"}, {"nchw", "nhwc"}, {"ncdhw", "ndhwc"}};
  return kNames[std::clamp(rank, 1, 3) - 1][channels_last ? 1 : 0];
}

std::vector<std::string> StrideTexts(const Problem& problem, int rank) {
  std::vector<std::string> dense = TextsUnder(problem, rank, false);
  std::vector<std::string> last = TextsUnder(problem, rank, true);
  const bool last_says_all = last.size() == 1 && !dense.empty();
  return last_says_all || last.size() < dense.size() ? last : dense;
}

Status ReadStrides(Problem* problem, bool channels_last,
                   const std::array<std::string_view, kOperands>& texts) {
  for (const StrideWord& word : kStrideWords) {
    const std::string_view text = texts[Index(word.operand)];
    const Dims dims = problem->DimsOf(word.operand);
    Dims& stride = problem->stride[Index(word.operand)];
    if (!problem->Has(word.operand)) {
      if (text.empty()) continue;
      return Error(Code::kInvalidProblem, "%s%s: this problem has no such operand", word.prefix,
                   std::string(text.substr(0, 60)).c_str());
    }
    stride = DefaultStrides(*problem, word.operand, channels_last);
    const Kind kind = KindOf(*problem, word.operand);
    if (!text.empty() && !ReadStrideText(kind, dims, problem->rank, text, &stride)) {
      return Error(Code::kInvalidProblem,
                   "%s: expected a layout such as %s, %zu strides (one per axis of the array) or 6",
                   Quoted(word.prefix + std::string(text)).c_str(),
                   std::string(LayoutName(problem->rank, true)).c_str(),
                   ArrayAxes(kind, problem->rank).size());
    }
  }
  if (problem->Uses(Operand::kOld)) {
    problem->stride[Index(Operand::kOld)] = problem->stride[Index(problem->output())];
  }
  return {};
}

}  // namespace oocdnn
