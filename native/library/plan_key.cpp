#include "library/plan_key.hpp"

#include "base/cache.hpp"
#include "geom/engines.hpp"
#include "model/rates.hpp"

namespace oocdnn {
namespace {

// Bytes in which a key with all operands finds room, so that making it allocates once.
constexpr size_t kKeyBytes = 1536;

// Raised whenever the same request may have another plan than before, or another key.
constexpr int kPlanner = 11;

void Append(std::string* key, const void* data, size_t bytes) {
  key->append(static_cast<const char*>(data), bytes);
}

}  // namespace

std::string KeyOf(const Problem& problem, const Homes& home, const InPlace& in_place,
                  int64_t workspace) {
  std::string key;
  key.reserve(kKeyBytes);
  const int32_t small[] = {static_cast<int32_t>(problem.direction),
                           problem.rank,
                           static_cast<int32_t>(problem.dtype),
                           static_cast<int32_t>(problem.math),
                           static_cast<int32_t>(problem.epilogue.scale),
                           static_cast<int32_t>(problem.epilogue.bias),
                           static_cast<int32_t>(problem.epilogue.residual),
                           static_cast<int32_t>(problem.epilogue.activation),
                           static_cast<int32_t>(problem.pool.mode),
                           static_cast<int32_t>(problem.pool.ceil),
                           static_cast<int32_t>(problem.saves),
                           static_cast<int32_t>(problem.clips),
                           static_cast<int32_t>(problem.slopes),
                           static_cast<int32_t>(problem.also.dw),
                           static_cast<int32_t>(problem.also.db),
                           static_cast<int32_t>(problem.prologue.affine),
                           static_cast<int32_t>(problem.prologue.activation),
                           static_cast<int32_t>(problem.sums),
                           static_cast<int32_t>(problem.pairs)};
  const double scalars[] = {problem.alpha, problem.beta, problem.epilogue.residual_alpha,
                            problem.epilogue.parameter, problem.prologue.parameter};
  Append(&key, small, sizeof small);
  Append(&key, scalars, sizeof scalars);
  Append(&key, &problem.shape, sizeof problem.shape);
  for (const Spatial* part : {&problem.pool.window, &problem.pool.stride, &problem.pool.pad_before,
                              &problem.pool.pad_after}) {
    Append(&key, part, sizeof *part);
  }
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Has(operand)) continue;
    const Dims dims = problem.DimsOf(operand);
    Dims stride = problem.stride[i];
    for (size_t d = 0; d < stride.size(); ++d) stride[d] = dims[d] > 1 ? stride[d] : 0;
    Append(&key, &stride, sizeof stride);
  }
  Append(&key, &home, sizeof home);
  Append(&key, &in_place, sizeof in_place);
  Append(&key, &workspace, sizeof workspace);
  return key;
}

std::string TilesKeyOf(const PlanRequest& request) {
  std::string key = KeyOf(request.problem, Homes{}, InPlace{}, request.workspace);
  for (const EngineInfo& engine : request.engines) key += engine.name + ';';
  return key;
}

uint64_t KeyOf(const PlanRequest& request, const Profile& profile) {
  const std::string rates = ToText(RatesOf(profile, request));
  std::string wanted = Format("%d%d%d%s", request.reproducible ? 1 : 0, request.measure ? 1 : 0,
                              request.exhaustive ? 1 : 0, request.gradual ? " gradual" : "");
  if (profile.busy_gpus > 0) wanted += Format(" beside %d", profile.busy_gpus);
  const std::string asked =
      KeyOf(request.problem, request.home, request.in_place, request.workspace);
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
