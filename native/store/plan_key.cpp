#include "store/plan_key.hpp"

#include <array>
#include <cstring>
#include <type_traits>

#include "base/cache.hpp"
#include "geom/engines.hpp"
#include "geom/problem_fields.hpp"
#include "model/price/rates.hpp"

namespace oocdnn {
namespace {

// Bytes in which a key with all operands finds room, so that making it allocates once.
constexpr size_t kKeyBytes = 1536;

// Raised whenever the same request may have another plan than before, or another key.
constexpr int kPlanner = 12;

void Append(std::string* key, const void* data, size_t bytes) {
  key->append(static_cast<const char*>(data), bytes);
}

}  // namespace

std::string KeyOf(const Problem& problem, const Tiers& tiers, const InPlace& in_place,
                  int64_t workspace) {
  std::string key;
  key.reserve(kKeyBytes);
  std::array<char, sizeof(Problem)> packed;  // one append: a call waits for its key
  size_t bytes = 0;
  VisitFields(problem, [&](const char*, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    static_assert(std::is_same_v<Field, double> || std::has_unique_object_representations_v<Field>,
                  "it has bytes that are no part of its value");
    std::memcpy(packed.data() + bytes, &field, sizeof field);
    bytes += sizeof field;
  });
  Append(&key, packed.data(), bytes);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Has(operand)) continue;
    const Dims dims = problem.DimsOf(operand);
    Dims stride = problem.stride[i];
    for (size_t d = 0; d < stride.size(); ++d) stride[d] = dims[d] > 1 ? stride[d] : 0;
    Append(&key, &stride, sizeof stride);
  }
  Append(&key, &tiers, sizeof tiers);
  Append(&key, &in_place, sizeof in_place);
  Append(&key, &workspace, sizeof workspace);
  return key;
}

std::string TilesKeyOf(const PlanRequest& request) {
  std::string key = KeyOf(request.problem, Tiers{}, InPlace{}, request.workspace);
  for (const EngineInfo& engine : request.engines) key += engine.name + ';';
  return key;
}

uint64_t KeyOf(const PlanRequest& request, const Profile& profile) {
  const std::string rates = ToText(RatesOf(profile, request));
  std::string wanted = Format("%d%d%d%s", request.reproducible ? 1 : 0, request.measure ? 1 : 0,
                              request.exhaustive ? 1 : 0, request.gradual ? " gradual" : "");
  if (request.pin_bytes > 0) wanted += " pins";
  if (profile.busy_gpus > 0) wanted += Format(" beside %d", profile.busy_gpus);
  const std::string asked =
      KeyOf(request.problem, request.tiers, request.in_place, request.workspace);
  return Hash(wanted, Hash(rates, Hash(asked)));
}

std::string PlannerOf(const Device& device) {
  std::string text = Format("oocdnn %s, planner %d; %s", OOCDNN_VERSION, kPlanner,
                            device.capabilities().description.c_str());
  for (const EngineInfo& engine : device.engines()) {
    text += "; " + LabelOf(engine);
  }
  return text;
}

}  // namespace oocdnn
