#include "model/text/plan_text.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include "geom/words.hpp"
#include "model/price/orders.hpp"

namespace oocdnn {
namespace {

constexpr std::string_view kAxisLetters = "ngkcdhw";
constexpr int kMostSlots = 16;
constexpr int kUsualSlots = 2;

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

// The engines that the word names, or all where it begins what comes after an engine.
std::vector<int> EnginesOf(const PlanRequest& request, std::string_view word) {
  std::vector<int> named, all;
  for (size_t i = 0; i < request.engines.size(); ++i) {
    const std::string& name = request.engines[i].name;
    if (name == word) named.push_back(static_cast<int>(i));
    if (!name.empty()) all.push_back(static_cast<int>(i));
  }
  const bool other = word == "order" || word == "slots" || word == "taper" || word == "pin" ||
                     (word.size() > 1 && kAxisLetters.find(word[0]) != std::string_view::npos &&
                      word.find_first_not_of("0123456789", 1) == std::string_view::npos);
  return named.empty() && other ? all : named;
}

Status WrongEngine(const PlanRequest& request, std::string_view word) {
  std::string known;
  for (const EngineInfo& engine : request.engines) {
    if (!engine.name.empty()) known += (known.empty() ? "" : ", ") + engine.name;
  }
  return Wrong(word, "no engine that serves, which are " + known);
}

Result<int64_t> LengthOf(std::string_view word, int64_t extent) {
  int64_t length = 0;
  if (!ReadNumber(word.substr(1), &length) || length < 1 || length > extent) {
    return Wrong(word, Format("not %c and a length from 1 to %lld", word[0],
                              static_cast<long long>(extent)));
  }
  return length;
}

// "n4": tiles of 4 samples at the ends.
Result<Tiling> TaperedBy(const Problem& problem, const Tiling& tiling, std::string_view word) {
  const size_t axis = kAxisLetters.find(word[0]);
  if (axis == std::string_view::npos || tiling.Count(static_cast<Axis>(axis)) <= 1) {
    return Wrong(word, "not the letter of an axis that is cut and a length");
  }
  Taper taper{static_cast<Axis>(axis), 0};
  OOC_ASSIGN(taper.length, LengthOf(word, tiling.length[axis] - 1));
  return Tapered(problem, tiling, taper);
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
  const std::vector<Operand> operands = Ringed(problem);
  int same = 0;
  const bool alike = ReadNumber(word, &same);
  std::string_view rest = word;
  for (const Operand operand : operands) {
    const size_t comma = std::min(rest.find(','), rest.size());
    int& depth = depths[Index(operand)];
    if (!ReadNumber(rest.substr(0, comma), &depth) || depth < 1 || depth > kMostSlots) {
      return Wrong(word,
                   Format("not %zu numbers from 1 to %d, or one", operands.size(), kMostSlots));
    }
    if (!alike) rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (!alike && !rest.empty()) return Wrong(word, "more slots than the problem has operands");
  return depths;
}

// "x,w": names of operands.
Result<Pinned> PinnedOf(const Problem& problem, std::string_view word) {
  Pinned pinned{};
  for (size_t begin = 0; begin <= word.size();) {
    const size_t comma = std::min(word.find(',', begin), word.size());
    const std::string_view name = word.substr(begin, comma - begin);
    bool found = false;
    for (int i = 0; i < kOperands; ++i) {
      const auto operand = static_cast<Operand>(i);
      if (!problem.Has(operand) || operand == Operand::kOld || pinned[i]) continue;
      if (name != Name(operand, problem.direction)) continue;
      found = pinned[i] = true;
      break;
    }
    if (!found) return Wrong(word, "not names of the problem's operands, each once");
    begin = comma + 1;
  }
  return pinned;
}

// Says of the cuts of reproducible sums which lengths they may have.
Status CheckSumUnits(const Problem& problem, const Tiling& tiling) {
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    const int64_t unit = SumUnit(problem, axis);
    const bool tapers = tiling.tapered() && tiling.taper.axis == axis;
    const int64_t ends = tapers ? tiling.taper.length : 0;
    if (tiling.Count(axis) <= 1 || (tiling.length[i] % unit == 0 && ends % unit == 0)) continue;
    return Error(Code::kInvalidProblem,
                 "the bits depend on tiles of %lld along %s, and reproducible results were asked "
                 "for; use multiples of %lld",
                 static_cast<long long>(ends % unit != 0 ? ends : tiling.length[i]), Name(axis),
                 static_cast<long long>(unit));
  }
  return {};
}

// Whether the sums are added up as those of one tile: the cuts allow it, and the loops over them go
// as one that the search would choose.
bool KeepsBits(const Problem& problem, const Candidate& candidate) {
  AxisArray counts{};
  for (int i = 0; i < kAxes; ++i) counts[i] = candidate.tiling.Count(static_cast<Axis>(i));
  if (!KeepsSummationOrder(problem, candidate.tiling)) return false;
  const auto summed = [&](const LoopOrder& order) {
    std::vector<Axis> axes;
    std::copy_if(order.begin(), order.end(), std::back_inserter(axes),
                 [&](Axis axis) { return counts[Index(axis)] > 1 && IsReduction(problem, axis); });
    return axes;
  };
  const std::vector<LoopOrder> usual = UsualOrders(problem, counts, true);
  return std::any_of(usual.begin(), usual.end(), [&](const LoopOrder& order) {
    return summed(order) == summed(candidate.order);
  });
}

// What a plan says, apart from its engine.
struct Parts {
  AxisArray length{};
  std::string_view order, slots, taper, pin;  // "": not said

  // What comes after the word; null where nothing special does.
  std::string_view* Named(std::string_view word) {
    if (word == "order") return &order;
    if (word == "slots") return &slots;
    if (word == "taper") return &taper;
    return word == "pin" ? &pin : nullptr;
  }
};

Result<Parts> PartsOf(const Problem& problem, const std::vector<std::string_view>& words) {
  Parts parts;
  parts.length = ExtentsOf(problem);
  const AxisArray extent = parts.length;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (std::string_view* named = parts.Named(word); named != nullptr) {
      if (i + 1 == words.size()) return Wrong(word, "nothing comes after it");
      *named = words[++i];
      continue;
    }
    const size_t axis = kAxisLetters.find(word[0]);
    if (axis == std::string_view::npos) {
      return Wrong(word, "not an axis and a length, \"order\", \"slots\", \"taper\" or \"pin\"");
    }
    OOC_ASSIGN(parts.length[axis], LengthOf(word, extent[axis]));
  }
  return parts;
}

Result<Candidate> CandidateOf(const PlanRequest& request, int engine, const Parts& parts) {
  const Problem& problem = request.problem;
  Candidate candidate;
  candidate.engine = engine;
  const bool as_data = !request.engines[static_cast<size_t>(engine)].symmetric_padding;
  candidate.tiling = MakeTiling(problem, parts.length, as_data);
  if (!parts.taper.empty()) {
    OOC_ASSIGN(candidate.tiling, TaperedBy(problem, candidate.tiling, parts.taper));
  }
  candidate.order = DefaultOrder(problem);
  if (!parts.order.empty()) {
    OOC_ASSIGN(candidate.order, OrderOf(problem, candidate.tiling, parts.order));
  }
  if (request.reproducible) OOC_TRY(CheckSumUnits(problem, candidate.tiling));
  if (request.reproducible && !KeepsBits(problem, candidate)) {
    return Wrong(parts.order.empty() ? "order" : parts.order,
                 "its bits depend on the tiles, and reproducible results were asked for");
  }
  const std::string usual = NumberText(kUsualSlots);
  OOC_ASSIGN(candidate.depths, DepthsOf(problem, parts.slots.empty() ? usual : parts.slots));
  if (!parts.pin.empty()) {
    OOC_ASSIGN(candidate.pinned, PinnedOf(problem, parts.pin));
  }
  return candidate;
}

}  // namespace

std::vector<std::string> PinnedNames(const Problem& problem, const Candidate& candidate) {
  std::vector<std::string> names;
  for (int i = 0; i < kOperands; ++i) {
    if (!candidate.pinned[i]) continue;
    names.emplace_back(Name(static_cast<Operand>(i), problem.direction));
  }
  return names;
}

std::string ToText(const PlanRequest& request, const Candidate& candidate) {
  std::string text = request.engines[static_cast<size_t>(candidate.engine)].name;
  std::string order, slots;
  for (int i = 0; i < kAxes; ++i) {
    text += std::string(" ") + kAxisLetters[static_cast<size_t>(i)];
    text += NumberText(candidate.tiling.length[i]);
  }
  for (const Axis axis : candidate.order) {
    if (candidate.tiling.Count(axis) > 1) order += kAxisLetters[static_cast<size_t>(axis)];
  }
  for (const Operand operand : Ringed(request.problem)) {
    slots += (slots.empty() ? "" : ",") + NumberText(candidate.depths[Index(operand)]);
  }
  text += " order " + (order.empty() ? "-" : order) + " slots " + slots;
  const Taper& taper = candidate.tiling.taper;
  if (candidate.tiling.tapered()) {
    text += std::string(" taper ") + kAxisLetters[Index(taper.axis)] + NumberText(taper.length);
  }
  const char* separator = " pin ";
  for (const std::string& name : PinnedNames(request.problem, candidate)) {
    text += separator + name;
    separator = ",";
  }
  return text;
}

Result<RankedCandidate> ParsePlan(const PlanRequest& request, const Profile& profile,
                                  std::string_view text) {
  std::vector<std::string_view> words = SplitWords(text);
  if (words.empty()) return Wrong(text, "it says nothing");
  const std::vector<int> engines = EnginesOf(request, words[0]);
  if (engines.empty()) return WrongEngine(request, words[0]);
  if (request.engines[static_cast<size_t>(engines[0])].name == words[0]) words.erase(words.begin());
  OOC_ASSIGN(const Parts parts, PartsOf(request.problem, words));
  std::optional<RankedCandidate> best;
  for (const int engine : engines) {
    OOC_ASSIGN(const Candidate candidate, CandidateOf(request, engine, parts));
    const Cost cost = PriceOf(request, candidate, profile);
    if (!best || cost.seconds < best->cost.seconds) best = RankedCandidate{candidate, cost};
  }
  return *best;
}

}  // namespace oocdnn
