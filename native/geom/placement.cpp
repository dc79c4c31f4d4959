#include "geom/placement.hpp"

#include <algorithm>

#include "geom/words.hpp"

namespace oocdnn {
namespace {

constexpr const char* kOperandNames[kOperands] = {
    "x", "w",     "y",     "b",       "scale",   "residual", "old",
    "z", "saved", "input", "also_dw", "also_db", "prologue", "sums"};

// -1 where no operand is called so.
int OperandOf(std::string_view name) {
  const bool gradient = name.size() == 2 && name[0] == 'd';
  const std::string_view operand = gradient ? name.substr(1) : name;
  for (int i = 0; i < kOperands; ++i) {
    if (operand == kOperandNames[i]) return i;
  }
  return -1;
}

Tier TierOf(std::string_view name) {
  for (const Tier tier : {Tier::kPageable, Tier::kPinned, Tier::kDevice, Tier::kFile}) {
    if (name == Name(tier)) return tier;
  }
  return Tier::kUnknown;
}

}  // namespace

const char* Name(Tier tier) {
  switch (tier) {
    case Tier::kPageable: return "page";
    case Tier::kPinned: return "pin";
    case Tier::kDevice: return "dev";
    case Tier::kFile: return "file";
    default: return "";
  }
}

Result<Placement> ParsePlacement(const std::string& text) {
  Placement placement;
  for (const std::string_view word : SplitWords(text)) {
    const size_t at = word.find('@');
    if (at == word.npos) continue;
    const int operand = OperandOf(word.substr(0, at));
    const Tier tier = TierOf(word.substr(at + 1));
    if (operand < 0 || tier == Tier::kUnknown) {
      return Error(
          Code::kInvalidProblem,
          "%s: expected an operand (x, w, y, b, scale, residual, old, z, saved, input, also_dw, "
          "also_db, prologue or sums) and where it lives: @page, @pin, @dev or @file",
          Quoted(word).c_str());
    }
    Tier& said = placement.tiers[static_cast<size_t>(operand)];
    if (said != Tier::kUnknown) {
      return Error(Code::kInvalidProblem, "%s: expected each operand once", Quoted(word).c_str());
    }
    said = tier;
  }
  return placement;
}

std::string ToString(const Placement& placement) {
  std::string text;
  for (int i = 0; i < kOperands; ++i) {
    const Tier tier = placement.tiers[static_cast<size_t>(i)];
    if (tier == Tier::kUnknown) continue;
    if (!text.empty()) text += ' ';
    text += std::string(kOperandNames[i]) + '@' + Name(tier);
  }
  return text;
}

}  // namespace oocdnn
