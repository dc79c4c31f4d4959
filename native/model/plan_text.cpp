#include "model/plan_text.hpp"

#include <algorithm>
#include <optional>

#include "geom/words.hpp"

namespace oocdnn {
namespace {

constexpr std::string_view kAxisLetters = "ngkcdhw";
constexpr int kMostSlots = 16;
constexpr size_t kWords = 1 + kAxes + 4;

Status Wrong(std::string_view word, const std::string& why) {
  return Error(Code::kInvalidProblem, "%s in a plan: %s", Quoted(word).c_str(), why.c_str());
}

// The operands that a plan has slots of, in order.
std::vector<Operand> Ringed(const Problem& problem) {
  std::vector<Operand> operands;
  for (int i = 0; i < kOperands; ++i) {
    if (problem.Uses(static_cast<Operand>(i))) operands.push_back(static_cast<Operand>(i));
  }
  return operands;
}

Result<int> EngineOf(const PlanRequest& request, std::string_view name) {
  std::string known;
  for (size_t i = 0; i < request.engines.size(); ++i) {
    if (request.engines[i].name == name) return static_cast<int>(i);
    known += (known.empty() ? "" : ", ") + request.engines[i].name;
  }
  return Wrong(name, "no engine of this device, which has " + known);
}

Result<int64_t> LengthOf(std::string_view word, char letter, int64_t extent) {
  int64_t length = 0;
  if (word.empty() || word[0] != letter || !ReadNumber(word.substr(1), &length) || length < 1 ||
      length > extent) {
    return Wrong(
        word, Format("not %c and a length from 1 to %lld", letter, static_cast<long long>(extent)));
  }
  return length;
}

// The axes of `word`, then those that it leaves out, which are not cut, in the default order.
Result<LoopOrder> OrderOf(const Problem& problem, const Tiling& tiling, std::string_view word) {
  std::vector<Axis> axes;
  for (const char letter : word == "-" ? std::string_view() : word) {
    const size_t at = kAxisLetters.find(letter);
    const auto axis = static_cast<Axis>(at);
    if (at == std::string_view::npos || std::find(axes.begin(), axes.end(), axis) != axes.end()) {
      return Wrong(word, "not some of the letters of " + std::string(kAxisLetters));
    }
    axes.push_back(axis);
  }
  for (const Axis axis : DefaultOrder(problem)) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
    if (tiling.Count(axis) > 1) return Wrong(word, std::string(Name(axis)) + " is cut, too");
    axes.push_back(axis);
  }
  LoopOrder order{};
  std::copy(axes.begin(), axes.end(), order.begin());
  if (!IsLegal(problem, tiling, order)) {
    return Wrong(word, "axes that are summed over come last");
  }
  return order;
}

Result<Depths> DepthsOf(const Problem& problem, std::string_view word) {
  Depths depths{};
  std::string_view rest = word;
  for (const Operand operand : Ringed(problem)) {
    const size_t comma = std::min(rest.find(','), rest.size());
    int& depth = depths[Index(operand)];
    if (!ReadNumber(rest.substr(0, comma), &depth) || depth < 1 || depth > kMostSlots) {
      return Wrong(word,
                   Format("not %zu numbers from 1 to %d", Ringed(problem).size(), kMostSlots));
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (!rest.empty()) return Wrong(word, "more slots than the problem has operands");
  return depths;
}

}  // namespace

std::string ToText(const PlanRequest& request, const Candidate& candidate) {
  std::string text = request.engines[static_cast<size_t>(candidate.engine)].name;
  std::string order, slots;
  for (int i = 0; i < kAxes; ++i) {
    text += std::string(" ") + kAxisLetters[static_cast<size_t>(i)];
    text += std::to_string(candidate.tiling.length[i]);
  }
  for (const Axis axis : candidate.order) {
    if (candidate.tiling.Count(axis) > 1) order += kAxisLetters[static_cast<size_t>(axis)];
  }
  for (const Operand operand : Ringed(request.problem)) {
    slots += (slots.empty() ? "" : ",") + std::to_string(candidate.depths[Index(operand)]);
  }
  return text + " order " + (order.empty() ? "-" : order) + " slots " + slots;
}

Result<Candidate> ParseCandidate(const PlanRequest& request, std::string_view text) {
  const Problem& problem = request.problem;
  const std::vector<std::string_view> words = SplitWords(text);
  if (words.size() != kWords || words[kAxes + 1] != "order" || words[kAxes + 3] != "slots") {
    return Wrong(text, "not \"ENGINE n1 g1 k1 c1 d1 h1 w1 order AXES slots COUNTS\"");
  }
  Candidate candidate;
  OOC_ASSIGN(candidate.engine, EngineOf(request, words[0]));
  AxisArray length = ExtentsOf(problem);
  for (size_t i = 0; i < kAxes; ++i) {
    OOC_ASSIGN(length[i], LengthOf(words[i + 1], kAxisLetters[i], length[i]));
  }
  const EngineInfo& engine = request.engines[static_cast<size_t>(candidate.engine)];
  candidate.tiling = MakeTiling(problem, length, !engine.symmetric_padding);
  if (candidate.tiling.length != length) {
    return Wrong(text, "its lengths on cut axes are no multiples of the stride");
  }
  OOC_ASSIGN(candidate.order, OrderOf(problem, candidate.tiling, words[kAxes + 2]));
  OOC_ASSIGN(candidate.depths, DepthsOf(problem, words[kAxes + 4]));
  return candidate;
}

}  // namespace oocdnn
