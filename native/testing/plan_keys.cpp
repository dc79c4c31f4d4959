// A C function for the keys that plans are found again by.
#include <string>
#include <type_traits>
#include <vector>

#include "geom/problem_fields.hpp"
#include "store/plan_key.hpp"
#include "testing/export.hpp"

namespace oocdnn::testing {
namespace {

// Another value of the field.
template <class Field>
void Change(Field* field) {
  if constexpr (std::is_enum_v<Field>) {
    *field = static_cast<Field>(static_cast<int>(*field) == 0 ? 1 : 0);
  } else if constexpr (std::is_same_v<Field, bool>) {
    *field = !*field;
  } else {
    *field += 1;
  }
}

void Change(Spatial* field, size_t axis) { ++(*field)[axis]; }

std::string KeyOf(const Problem& problem) {
  return oocdnn::KeyOf(problem, Tiers{}, InPlace{}, kNoLimit);
}

}  // namespace

// The fields of the problem, a line each, "dtype" or "shape.dilation 2"; behind it "same" where the
// key is the same with another value.
OOC_EXPORT void oocdnn_testing_key_fields(const Problem* problem, char* text, int64_t capacity) {
  const std::string key = KeyOf(*problem);
  Problem changed = *problem;
  std::string lines;
  const auto note = [&](const std::string& name) {
    lines += name + (KeyOf(changed) == key ? " same\n" : "\n");
  };
  VisitFields(changed, [&](const char* name, auto& field) {
    const auto before = field;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Spatial>) {
      for (size_t axis = 0; axis < field.size(); ++axis) {
        Change(&field, axis);
        note(Format("%s %zu", name, axis));
        field = before;
      }
    } else {
      Change(&field);
      note(name);
      field = before;
    }
  });
  for (size_t i = 0; i < changed.stride.size(); ++i) {
    for (size_t d = 0; d < changed.stride[i].size(); ++d) {
      ++changed.stride[i][d];
      note(Format("stride %zu %zu", i, d));
      --changed.stride[i][d];
    }
  }
  CopyText(lines, text, capacity);
}

// The fields in which two problems differ, a line each.
OOC_EXPORT void oocdnn_testing_differing_fields(const Problem* first, const Problem* second,
                                                char* text, int64_t capacity) {
  std::vector<std::string> bytes;
  std::string lines = first->stride == second->stride ? "" : "stride\n";
  VisitFields(*first, [&](const char*, const auto& field) {
    bytes.emplace_back(reinterpret_cast<const char*>(&field), sizeof field);
  });
  size_t number = 0;
  VisitFields(*second, [&](const char* name, const auto& field) {
    const std::string other(reinterpret_cast<const char*>(&field), sizeof field);
    if (bytes[number++] != other) lines += std::string(name) + "\n";
  });
  CopyText(lines, text, capacity);
}

// True if two requests that differ in where an operand lies, or in the workspace, have one key.
OOC_EXPORT int oocdnn_testing_same_key(const Problem* problem, int on_device, int in_place,
                                       int64_t workspace) {
  Tiers tiers{};
  InPlace places{};
  if (on_device >= 0) tiers[static_cast<size_t>(on_device)] = Tier::kDevice;
  if (in_place >= 0) places[static_cast<size_t>(in_place)] = true;
  return oocdnn::KeyOf(*problem, tiers, places, workspace) == KeyOf(*problem) ? 1 : 0;
}

}  // namespace oocdnn::testing
