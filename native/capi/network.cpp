// The C functions of training steps: schedules within a limit, and the search for policies.
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/process_lock.hpp"
#include "base/thread.hpp"
#include "capi/arrays.hpp"
#include "capi/guard.hpp"
#include "capi/oocdnn.h"
#include "network/scheduler.hpp"
#include "network/search.hpp"
#include "network/step.hpp"

struct oocdnn_scheduler {
  explicit oocdnn_scheduler(oocdnn::network::Step step)
      : scheduler(std::move(step)), choices(scheduler.step().saved.size()) {}

  oocdnn::ProcessLock turn;
  oocdnn::network::Scheduler scheduler;
  std::vector<oocdnn::network::Choice> choices;  // of the call that has its turn
};

namespace {

using namespace oocdnn;  // NOLINT: this file is a C face of that namespace

// The first `count` elements of `rest`, which goes on behind them.
template <class T>
Result<std::span<const T>> Take(std::span<const T>* rest, int64_t count, const char* what) {
  if (count < 0 || static_cast<uint64_t>(count) > rest->size()) {
    return Error(Code::kInvalidProblem, "%lld %s are named, of which %zu are left",
                 static_cast<long long>(count), what, rest->size());
  }
  const std::span<const T> taken = rest->first(static_cast<size_t>(count));
  *rest = rest->subspan(static_cast<size_t>(count));
  return taken;
}

Result<network::Step> StepOf(const oocdnn_training_step& given) {
  OOC_ASSIGN(const auto operations,
             ArrayOf(given.operations, given.operation_count, "the array of operations"));
  OOC_ASSIGN(const auto tensors, ArrayOf(given.tensors, given.tensor_count, "that of tensors"));
  OOC_ASSIGN(auto recipes, ArrayOf(given.recipes, given.recipe_count, "that of recipes"));
  OOC_ASSIGN(auto inputs, ArrayOf(given.inputs, given.input_count, "that of their inputs"));
  network::Step step;
  step.forward = given.forward;
  step.link = {given.to_host, given.from_host, given.latency, given.host};
  for (const oocdnn_step_operation& one : operations) {
    step.operations.push_back({one.seconds, one.host, one.fixed_bytes, one.begin_bytes});
  }
  for (const oocdnn_step_tensor& one : tensors) {
    network::Saved& made = step.saved.emplace_back();
    made = {one.bytes,
            one.produced,
            one.last_forward_use,
            one.first_use,
            one.last_use,
            one.squeezed_bytes,
            one.squeeze_seconds,
            one.squeeze_host,
            one.movable != 0,
            one.squeezed_whole != 0,
            {}};
    OOC_ASSIGN(const auto own, Take(&recipes, one.recipes, "recipes"));
    for (const oocdnn_step_recipe& recipe : own) {
      OOC_ASSIGN(const auto read, Take(&inputs, recipe.inputs, "inputs of recipes"));
      made.recipes.push_back({std::vector<int64_t>(read.begin(), read.end()), recipe.seconds,
                              recipe.host, recipe.temporary_bytes});
    }
  }
  OOC_TRY(network::Check(step));
  return step;
}

Status NeedSearch(const oocdnn_search& search) {
  OOC_TRY(NeedLimit(search.limit));
  const bool finite = std::isfinite(search.warmth) && !std::isnan(search.seconds);
  if (search.trials >= 0 && finite && search.warmth >= 0.0) return {};
  return Error(Code::kInvalidProblem,
               "a search of %lld trials in %g s with a warmth of %g s is not possible; none may be "
               "negative",
               static_cast<long long>(search.trials), search.seconds, search.warmth);
}

// `body` with the policies, when the scheduler has no other call.
template <class Body>
Status InTurn(oocdnn_scheduler* scheduler, const int32_t* policies, const Body& body) {
  OOC_TRY(Need(scheduler, "the scheduler"));
  OOC_TRY(Need(policies, "the array of policies"));
  if (scheduler->turn.HeldByThisThread()) {
    return Error(Code::kInvalidProblem, "the scheduler is in use by the call that tells progress");
  }
  const std::lock_guard turn(scheduler->turn);
  scheduler->choices.assign(policies, policies + scheduler->choices.size());
  OOC_TRY(network::CheckChoices(scheduler->scheduler.step(), scheduler->choices));
  return body(&scheduler->scheduler, &scheduler->choices);
}

oocdnn_schedule_totals TotalsOf(const network::Totals& totals) {
  return {totals.seconds, totals.waiting, totals.recomputing, totals.late, totals.peak_bytes};
}

void CopyMovements(const network::Scheduler& scheduler, oocdnn_movement* movements) {
  for (const network::Movement& one : scheduler.movements()) {
    *movements++ = {one.release, one.fetch, one.need};
  }
}

void CopyBytes(const network::Scheduler& scheduler, int64_t* bytes_at) {
  for (size_t position = 0; position < scheduler.step().operations.size(); ++position) {
    bytes_at[position] = scheduler.BytesAt(position);
  }
}

network::Progress ProgressOf(oocdnn_progress progress, void* user) {
  return [=](int64_t done, int64_t trials) {
    if (progress == nullptr) return true;
    const Uncancelled::Lifted lifted;
    return progress(user, done, trials) == 0;
  };
}

}  // namespace

oocdnn_status oocdnn_create_scheduler(const oocdnn_training_step* step,
                                      oocdnn_scheduler** scheduler) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(step, "the step"));
    OOC_TRY(Need(scheduler, "the place for the scheduler"));
    OOC_ASSIGN(network::Step made, StepOf(*step));
    *scheduler = std::make_unique<oocdnn_scheduler>(std::move(made)).release();
    return {};
  });
}

void oocdnn_destroy_scheduler(oocdnn_scheduler* scheduler) { delete scheduler; }

oocdnn_status oocdnn_make_schedule(oocdnn_scheduler* scheduler, int64_t limit, int32_t* policies,
                                   oocdnn_schedule_totals* totals, oocdnn_movement* movements,
                                   int64_t* bytes_at, double* waits) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(totals, "the place for the totals"));
    OOC_TRY(NeedLimit(limit));
    return InTurn(scheduler, policies,
                  [&](network::Scheduler* made, std::vector<network::Choice>* choices) -> Status {
                    *totals = TotalsOf(made->Run(limit, *choices));
                    std::copy(made->choices().begin(), made->choices().end(), policies);
                    if (movements != nullptr) CopyMovements(*made, movements);
                    if (bytes_at != nullptr) CopyBytes(*made, bytes_at);
                    if (waits != nullptr) {
                      std::copy(made->waits().begin(), made->waits().end(), waits);
                    }
                    return {};
                  });
  });
}

oocdnn_status oocdnn_improve_policies(oocdnn_scheduler* scheduler, const oocdnn_search* search,
                                      oocdnn_progress progress, void* progress_user,
                                      int32_t* policies, oocdnn_schedule_totals* totals) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(search, "the search"));
    OOC_TRY(Need(totals, "the place for the totals"));
    OOC_TRY(NeedSearch(*search));
    const network::SearchOptions options{search->limit, search->trials,
                                         static_cast<uint64_t>(search->seed), search->warmth,
                                         search->seconds};
    return InTurn(scheduler, policies,
                  [&](network::Scheduler* made, std::vector<network::Choice>* choices) -> Status {
                    Status ended = network::Improve(made, options,
                                                    ProgressOf(progress, progress_user), choices);
                    std::copy(choices->begin(), choices->end(), policies);
                    *totals = TotalsOf(made->Run(search->limit, *choices));
                    return ended;
                  });
  });
}
