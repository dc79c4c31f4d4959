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
  const std::string_view place = gradient ? name.substr(1) : name;
  for (int i = 0; i < kOperands; ++i) {
    if (place == kOperandNames[i]) return i;
  }
  return -1;
}

Place PlaceOf(std::string_view name) {
  for (int i = 1; i < kPlaces; ++i) {
    if (name == Name(static_cast<Place>(i))) return static_cast<Place>(i);
  }
  return Place::kUnsaid;
}

}  // namespace

const char* Name(Place place) {
  switch (place) {
    case Place::kUnsaid: return "";
    case Place::kPageable: return "page";
    case Place::kPinned: return "pin";
    case Place::kDevice: return "dev";
    case Place::kFile: return "file";
  }
  return "";
}

Result<Placement> ParsePlacement(const std::string& text) {
  Placement placement;
  for (const std::string_view word : SplitWords(text)) {
    const size_t at = word.find('@');
    if (at == word.npos) continue;
    const int operand = OperandOf(word.substr(0, at));
    const Place place = PlaceOf(word.substr(at + 1));
    if (operand < 0 || place == Place::kUnsaid) {
      return Error(
          Code::kInvalidProblem,
          "%s: expected an operand (x, w, y, b, scale, residual, old, z, saved, input, also_dw, "
          "also_db, prologue or sums) and where it lives: @page, @pin, @dev or @file",
          Quoted(word).c_str());
    }
    Place& said = placement.place[static_cast<size_t>(operand)];
    if (said != Place::kUnsaid) {
      return Error(Code::kInvalidProblem, "%s: expected each operand once", Quoted(word).c_str());
    }
    said = place;
  }
  return placement;
}

std::string ToString(const Placement& placement) {
  std::string text;
  for (int i = 0; i < kOperands; ++i) {
    const Place place = placement.place[static_cast<size_t>(i)];
    if (place == Place::kUnsaid) continue;
    if (!text.empty()) text += ' ';
    text += std::string(kOperandNames[i]) + '@' + Name(place);
  }
  return text;
}

}  // namespace oocdnn
