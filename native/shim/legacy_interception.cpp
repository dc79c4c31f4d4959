#include "shim/legacy_interception.hpp"

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/process_lock.hpp"
#include "shim/interception.hpp"
#include "shim/layers.hpp"

namespace oocdnn::shim {
namespace {

// What was taken stays so, because the client has the workspace that we said; so there is an end to
// taking.
constexpr size_t kMost = 4096;

struct Taken {
  ProcessLock lock;
  std::unordered_map<std::string, size_t> workspaces;
  std::atomic<bool> any{false};
};

Taken& TheTaken() {
  static auto* const taken = new Taken;
  return *taken;
}

template <class T>
void Append(std::string* key, const T& value) {
  key->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Equal keys, equal problems, algorithms and math types: the tiles of one may need more than those
// of another.
std::string KeyOf(const ConvolutionCall& problem, int algorithm) {
  std::string key;
  const ConvolutionValue& convolution = problem.convolution;
  for (const int number :
       {static_cast<int>(problem.direction), algorithm, problem.device, problem.x.value.rank,
        static_cast<int>(problem.x.value.dtype), static_cast<int>(convolution.mode),
        convolution.groups, static_cast<int>(convolution.math)}) {
    Append(&key, number);
  }
  for (const Axes* axes : {&problem.x.value.dims, &problem.x.value.stride, &problem.y.value.dims,
                           &problem.y.value.stride, &problem.w.dims, &problem.w.stride,
                           &convolution.pad, &convolution.stride, &convolution.dilation}) {
    Append(&key, *axes);
  }
  return key;
}

}  // namespace

void TakeWorkspace(const ConvolutionCall& problem, int algorithm, size_t* workspace) {
  if (WhyTaken(problem, static_cast<int64_t>(*workspace)) == nullptr) return;
  Taken& taken = TheTaken();
  std::string key = KeyOf(problem, algorithm);
  {
    const std::lock_guard turn(taken.lock);
    const auto known = taken.workspaces.find(key);
    if (known != taken.workspaces.end()) *workspace = known->second;
    // A share of a workspace changes until all layers are known.
    const bool stays = known != taken.workspaces.end() && !TotalWorkspace();
    if (stays || taken.workspaces.size() >= kMost) return;
  }
  const auto bytes = ScratchBytes(problem);
  if (!bytes) return;
  Announce(problem, static_cast<int64_t>(*workspace), *bytes);
  const std::lock_guard turn(taken.lock);
  *workspace = taken.workspaces.insert_or_assign(std::move(key), *bytes).first->second;
  taken.any = true;
}

bool LegacyTaken(const ConvolutionCall& problem, int algorithm) {
  Taken& taken = TheTaken();
  const std::string key = KeyOf(problem, algorithm);
  const std::lock_guard turn(taken.lock);
  return taken.workspaces.count(key) > 0;
}

bool AnyLegacyTaken() { return TheTaken().any; }

}  // namespace oocdnn::shim
