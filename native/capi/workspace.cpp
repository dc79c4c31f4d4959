// The C functions of workspace division: arrays in, arrays of the calling thread out; and the one
// that measures what is divided.
#include <algorithm>
#include <utility>
#include <vector>

#include "capi/context.hpp"
#include "capi/guard.hpp"
#include "capi/oocdnn.h"
#include "model/search/micro_batch.hpp"
#include "model/search/workspace.hpp"

namespace {

using namespace oocdnn;  // NOLINT: this file is a C face of that namespace

// Divisions as the model made them, and as C sees them.
struct Divisions {
  std::vector<std::vector<oocdnn_parts>> parts;
  std::vector<oocdnn_division> divisions;

  void Set(const std::vector<Division>& made) {
    parts.clear();
    divisions.clear();
    for (const Division& division : made) {
      auto& list = parts.emplace_back();
      for (const Parts& same : division.parts) list.push_back({same.choice, same.count});
      divisions.push_back({division.seconds, division.workspace_bytes, list.data(),
                           static_cast<int64_t>(list.size())});
    }
  }
};

Result<std::vector<MicroBatch>> ChoicesOf(const oocdnn_micro_batch* choices, int64_t count) {
  OOC_TRY(Need(choices, "the array of choices"));
  OOC_TRY(NeedCount(count, "the number of choices"));
  std::vector<MicroBatch> made;
  for (const oocdnn_micro_batch* choice = choices; choice != choices + count; ++choice) {
    made.push_back({choice->samples, choice->seconds, choice->workspace_bytes});
  }
  return made;
}

Result<std::vector<WorkspaceOptions>> OptionsOf(const oocdnn_workspace_option* const* options,
                                                const int64_t* counts, int64_t kernels) {
  OOC_TRY(NeedCount(kernels, "the number of kernels"));
  std::vector<WorkspaceOptions> made;
  for (int64_t k = 0; k < kernels; ++k) {
    OOC_TRY(Need(options[k], "an array of options"));
    OOC_TRY(NeedCount(counts[k], "a number of options"));
    WorkspaceOptions& list = made.emplace_back();
    for (int64_t i = 0; i < counts[k]; ++i) {
      list.push_back({options[k][i].seconds, options[k][i].workspace_bytes});
    }
  }
  return made;
}

struct Batch {
  const oocdnn_micro_batch* choices;
  int64_t count, batch;
};

template <class Divide>
Status HandOutFront(const Divide& divide, const Batch& batch, Divisions* made,
                    const oocdnn_division** divisions, int64_t* length) {
  OOC_TRY(Need(divisions, "the place for the divisions"));
  OOC_TRY(Need(length, "the place for their number"));
  OOC_ASSIGN(const std::vector<MicroBatch> list, ChoicesOf(batch.choices, batch.count));
  OOC_ASSIGN(const std::vector<Division> front, divide(list, batch.batch));
  made->Set(front);
  *divisions = made->divisions.data();
  *length = static_cast<int64_t>(front.size());
  return {};
}

}  // namespace

oocdnn_status oocdnn_micro_batch_sizes(int32_t policy, int64_t batch, const int64_t** sizes,
                                       int64_t* length) {
  return Guard([&]() -> Status {
    thread_local HandedOut<std::vector<int64_t>> all;
    OOC_TRY(Need(sizes, "the place for the sizes"));
    OOC_TRY(Need(length, "the place for their number"));
    OOC_TRY(NeedPolicy(policy));
    std::vector<int64_t>& made = all.Next();
    OOC_ASSIGN(made, MicroBatchSizes(static_cast<BatchPolicy>(policy), batch));
    *sizes = made.data();
    *length = static_cast<int64_t>(made.size());
    return {};
  });
}

oocdnn_status oocdnn_pareto_divisions(const oocdnn_micro_batch* choices, int64_t count,
                                      int64_t batch, const oocdnn_division** divisions,
                                      int64_t* length) {
  return Guard([&]() -> Status {
    thread_local HandedOut<Divisions> made;
    return HandOutFront(ParetoDivisions, {choices, count, batch}, &made.Next(), divisions, length);
  });
}

oocdnn_status oocdnn_even_divisions(const oocdnn_micro_batch* choices, int64_t count, int64_t batch,
                                    const oocdnn_division** divisions, int64_t* length) {
  return Guard([&]() -> Status {
    thread_local HandedOut<Divisions> made;
    return HandOutFront(EvenDivisions, {choices, count, batch}, &made.Next(), divisions, length);
  });
}

oocdnn_status oocdnn_divide_batch(const oocdnn_micro_batch* choices, int64_t count, int64_t batch,
                                  int64_t limit, const oocdnn_division** division) {
  return Guard([&]() -> Status {
    thread_local HandedOut<Divisions> all;
    OOC_TRY(Need(division, "the place for the division"));
    OOC_ASSIGN(const std::vector<MicroBatch> list, ChoicesOf(choices, count));
    OOC_ASSIGN(Division best, DivideBatch(list, batch, limit));
    Divisions& made = all.Next();
    made.Set({std::move(best)});
    *division = made.divisions.data();
    return {};
  });
}

oocdnn_status oocdnn_divide_workspace(const oocdnn_workspace_option* const* options,
                                      const int64_t* counts, int64_t kernels, int64_t total,
                                      int64_t* chosen, oocdnn_workspace_division* division) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(options, "the arrays of options"));
    OOC_TRY(Need(counts, "their lengths"));
    OOC_TRY(Need(chosen, "the place for what is chosen"));
    OOC_TRY(Need(division, "the place for the division"));
    OOC_ASSIGN(const std::vector<WorkspaceOptions> lists, OptionsOf(options, counts, kernels));
    OOC_ASSIGN(const WorkspaceDivision made, DivideWorkspace(lists, total));
    std::copy(made.chosen.begin(), made.chosen.end(), chosen);
    *division = {made.seconds, made.workspace_bytes, made.least_seconds};
    return {};
  });
}

oocdnn_status oocdnn_measure_parts(oocdnn_context* context, const char* problem, int32_t policy,
                                   const oocdnn_micro_batch** choices, int64_t* count,
                                   int64_t* batch) {
  return Guard([&]() -> Status {
    thread_local HandedOut<std::vector<oocdnn_micro_batch>> all;
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(problem, "the problem string"));
    OOC_TRY(Need(choices, "the place for the choices"));
    OOC_TRY(Need(count, "the place for their number"));
    OOC_TRY(Need(batch, "the place for the batch"));
    OOC_TRY(NeedPolicy(policy));
    OOC_ASSIGN(const Problem parsed, ParseProblem(problem));
    OOC_ASSIGN(const std::vector<MicroBatch> parts,
               context->context->MeasureParts(parsed, static_cast<BatchPolicy>(policy)));
    std::vector<oocdnn_micro_batch>& made = all.Next();
    made.clear();
    for (const MicroBatch& part : parts) {
      made.push_back({part.samples, part.seconds, part.workspace_bytes});
    }
    *choices = made.data();
    *count = static_cast<int64_t>(made.size());
    *batch = parsed.shape.n;
    return {};
  });
}
