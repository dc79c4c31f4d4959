// Checks of a training step and of choices for it.
#include "network/step.hpp"

#include <algorithm>
#include <cmath>

#include "base/checked.hpp"

namespace oocdnn::network {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 60;

// False for NaN, too.
bool IsTime(double seconds) { return seconds >= 0.0 && std::isfinite(seconds); }

Status CheckOperations(const Step& step, int64_t* total) {
  const auto count = static_cast<int64_t>(step.operations.size());
  if (step.forward < 0 || step.forward > count) {
    return Error(Code::kInvalidProblem, "forward is %lld; a step of %lld operations has 0 to %lld",
                 static_cast<long long>(step.forward), static_cast<long long>(count),
                 static_cast<long long>(count));
  }
  int64_t most = 0;
  double seconds = 0.0;
  for (const Operation& one : step.operations) {
    if (!IsTime(one.seconds) || !IsTime(one.host) || one.fixed_bytes < 0 || one.begin_bytes < 0) {
      return Error(Code::kInvalidProblem,
                   "operation %lld takes %g s, %g s of the host, %lld bytes and %lld at its "
                   "beginning; all must be finite and at least 0",
                   static_cast<long long>(&one - step.operations.data()), one.seconds, one.host,
                   static_cast<long long>(one.fixed_bytes),
                   static_cast<long long>(one.begin_bytes));
    }
    most = std::max({most, one.fixed_bytes, one.begin_bytes});
    seconds += one.seconds + one.host;
  }
  if (!IsTime(seconds)) return Error(Code::kInvalidProblem, "the step takes infinitely long");
  *total = most;
  return {};
}

Status CheckSaved(const Step& step, size_t index) {
  const Saved& one = step.saved[index];
  const auto count = static_cast<int64_t>(step.operations.size());
  const bool in_forward = 0 <= one.produced && one.produced <= one.last_forward_use &&
                          one.last_forward_use < step.forward;
  const bool in_backward =
      step.forward <= one.first_use && one.first_use <= one.last_use && one.last_use < count;
  const bool in_order = index == 0 || step.saved[index - 1].produced <= one.produced;
  const bool squeezes =
      one.squeezed_bytes < 0 || (IsTime(one.squeeze_seconds) && IsTime(one.squeeze_host));
  if (one.bytes >= 0 && in_forward && in_backward && in_order && squeezes) return {};
  return Error(Code::kInvalidProblem,
               "saved tensor %zu: %lld bytes, produced at %lld, last used in forward at %lld, used "
               "in backward from %lld to %lld, squeezed in %g s, %g s of the host; a step of %lld "
               "operations has backward from %lld on, and saved tensors are in the order of "
               "production",
               index, static_cast<long long>(one.bytes), static_cast<long long>(one.produced),
               static_cast<long long>(one.last_forward_use), static_cast<long long>(one.first_use),
               static_cast<long long>(one.last_use), one.squeeze_seconds, one.squeeze_host,
               static_cast<long long>(count), static_cast<long long>(step.forward));
}

Status CheckRecipe(const Recipe& recipe, size_t index) {
  if (!IsTime(recipe.seconds) || !IsTime(recipe.host) || recipe.temporary_bytes < 0) {
    return Error(Code::kInvalidProblem,
                 "a recipe of saved tensor %zu takes %g s, %g s of the host and %lld bytes; all "
                 "must be finite and at least 0",
                 index, recipe.seconds, recipe.host,
                 static_cast<long long>(recipe.temporary_bytes));
  }
  for (const int64_t source : recipe.inputs) {
    if (source < 0 || source >= static_cast<int64_t>(index)) {
      return Error(Code::kInvalidProblem,
                   "saved tensor %zu cannot be computed from number %lld: a recipe reads saved "
                   "tensors of smaller numbers",
                   index, static_cast<long long>(source));
    }
  }
  return {};
}

bool IsRate(double rate) { return rate > 0.0 && std::isfinite(rate); }

}  // namespace

Status Check(const Step& step) {
  const Link& link = step.link;
  const bool rates = IsRate(link.to_host) && IsRate(link.from_host);
  if (!rates || !IsTime(link.latency) || !IsTime(link.host)) {
    return Error(Code::kInvalidProblem,
                 "the link has rates %g and %g bytes/s, a latency of %g s and %g s of the host; "
                 "rates must be positive, all of them finite",
                 link.to_host, link.from_host, link.latency, link.host);
  }
  int64_t total = 0, most = 0;
  OOC_TRY(CheckOperations(step, &total));
  for (size_t index = 0; index < step.saved.size(); ++index) {
    OOC_TRY(CheckSaved(step, index));
    const Saved& one = step.saved[index];
    total = Add(total, Add(one.bytes, std::max<int64_t>(one.squeezed_bytes, 0)));
    for (const Recipe& recipe : one.recipes) {
      OOC_TRY(CheckRecipe(recipe, index));
      most = std::max(most, recipe.temporary_bytes);
    }
  }
  if (Add(total, most) <= kMostBytes) return {};
  return Error(Code::kInvalidProblem, "the step's tensors have more than 2^60 bytes in all");
}

Status CheckChoices(const Step& step, const std::vector<Choice>& choices) {
  for (size_t index = 0; index < step.saved.size(); ++index) {
    const Saved& one = step.saved[index];
    const Choice choice = choices[index];
    const bool squeezes = choice != kSqueeze || one.squeezed_bytes >= 0;
    const auto most = static_cast<int64_t>(one.recipes.size()) + kRecipe;
    if (choice >= 0 && choice < most && squeezes) continue;
    return Error(Code::kInvalidProblem,
                 "saved tensor %zu, with %zu recipes and %s smaller form, has no choice %d", index,
                 one.recipes.size(), one.squeezed_bytes >= 0 ? "a" : "no", choice);
  }
  return {};
}

std::vector<Choice> OptionsOf(const Step& step, const Saved& one) {
  std::vector<Choice> found{kKeep};
  if (!one.movable || one.bytes == 0) return found;
  found.push_back(kSwap);
  if (one.squeezed_bytes >= 0) found.push_back(kSqueeze);
  for (size_t number = 0; number < one.recipes.size(); ++number) {
    const std::vector<int64_t>& inputs = one.recipes[number].inputs;
    const bool there = std::all_of(inputs.begin(), inputs.end(), [&](int64_t source) {
      return step.saved[static_cast<size_t>(source)].last_use >= one.first_use;
    });
    if (there) found.push_back(kRecipe + static_cast<Choice>(number));
  }
  return found;
}

}  // namespace oocdnn::network
