// The functions that divide workspace.
#include <limits>

#include "testing/fuzz_capi/session.hpp"

namespace oocdnn::fuzz_capi {
namespace {

double DrawSeconds(Random* random) {
  constexpr double kOdd[] = {0.0,
                             -1.0,
                             1e308,
                             5e-324,
                             std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};
  return random->Chance(5) ? kOdd[random->Below(6)] : 1e-3 * static_cast<double>(random->Below(99));
}

int64_t DrawBytes(Random* random) {
  return random->Chance(5) ? random->Integer() : random->Between(0, 4096);
}

// Arrays of exactly their size, on the heap.
std::vector<oocdnn_micro_batch> DrawChoices(Random* random) {
  std::vector<oocdnn_micro_batch> choices(random->Below(7));
  for (oocdnn_micro_batch& choice : choices) {
    choice.samples = random->Chance(5) ? random->Integer() : random->Between(1, 16);
    choice.seconds = DrawSeconds(random);
    choice.workspace_bytes = DrawBytes(random);
  }
  return choices;
}

int64_t DrawBatch(Random* random) {
  return random->Chance(5) ? random->Integer() : random->Between(1, 40);
}

void Read(const oocdnn_division& division, size_t choices, int64_t batch) {
  int64_t parts = 0;
  for (int64_t i = 0; i < division.length; ++i) {
    const oocdnn_parts& part = division.parts[i];
    Expect(part.choice >= 0 && static_cast<size_t>(part.choice) < choices, "no such choice");
    Expect(part.count > 0, "no part");
    parts += part.count;
  }
  Expect((parts > 0) == (batch > 0), "a division without parts");
  Expect(division.seconds >= 0.0 && division.workspace_bytes >= 0, "less than nothing");
}

template <class Function>
void CallFront(Random* random, Function* function, const char* name) {
  const std::vector<oocdnn_micro_batch> choices = DrawChoices(random);
  const oocdnn_division* divisions = nullptr;
  int64_t length = 0;
  const bool absent = random->Chance(3);
  const int64_t batch = DrawBatch(random);
  const auto count = random->Chance(2) ? -1 : static_cast<int64_t>(choices.size());
  Now(name);
  const oocdnn_status status = function(absent ? nullptr : choices.data(), count, batch,
                                        random->Chance(2) ? nullptr : &divisions, &length);
  if (Answered(status) != OOCDNN_OK) return;
  for (int64_t i = 0; i < length; ++i) Read(divisions[i], choices.size(), batch);
}

void CallBest(Random* random) {
  const std::vector<oocdnn_micro_batch> choices = DrawChoices(random);
  const oocdnn_division* division = nullptr;
  Now("oocdnn_divide_batch");
  const int64_t limit = DrawBytes(random), batch = DrawBatch(random);
  const oocdnn_status status =
      oocdnn_divide_batch(choices.data(), static_cast<int64_t>(choices.size()), batch, limit,
                          random->Chance(2) ? nullptr : &division);
  if (Answered(status) != OOCDNN_OK) return;
  Read(*division, choices.size(), batch);
  Expect(division->workspace_bytes <= limit, "more than the limit");
}

void CallSizes(Random* random) {
  const int64_t* sizes = nullptr;
  int64_t length = 0;
  const int64_t batch = DrawBatch(random);
  Now("oocdnn_micro_batch_sizes");
  const oocdnn_status status = oocdnn_micro_batch_sizes(
      random->Int(2), batch, random->Chance(2) ? nullptr : &sizes, &length);
  if (Answered(status) != OOCDNN_OK) return;
  for (int64_t i = 0; i < length; ++i) Expect(sizes[i] > 0 && sizes[i] <= batch, "no size");
}

void CallWorkspace(Random* random) {
  std::vector<std::vector<oocdnn_workspace_option>> lists(random->Below(6));
  std::vector<const oocdnn_workspace_option*> options;
  std::vector<int64_t> counts;
  for (auto& list : lists) {
    list.resize(1 + random->Below(4));
    for (auto& option : list) option = {DrawSeconds(random), DrawBytes(random)};
    options.push_back(random->Chance(1) ? nullptr : list.data());
    counts.push_back(random->Chance(1) ? -random->Between(0, 1)
                                       : static_cast<int64_t>(list.size()));
  }
  std::vector<int64_t> chosen(lists.size());
  oocdnn_workspace_division division{};
  const int64_t total = random->Chance(5) ? random->Integer() : random->Between(0, 16384);
  const auto kernels = random->Chance(2) ? -1 : static_cast<int64_t>(lists.size());
  Now("oocdnn_divide_workspace");
  const oocdnn_status status =
      oocdnn_divide_workspace(options.data(), counts.data(), kernels, total, chosen.data(),
                              random->Chance(2) ? nullptr : &division);
  if (Answered(status) != OOCDNN_OK) return;
  int64_t bytes = 0;
  for (size_t k = 0; k < lists.size(); ++k) {
    const auto index = static_cast<size_t>(chosen[k]);
    Expect(chosen[k] >= 0 && index < lists[k].size(), "no such option");
    bytes += lists[k][index].workspace_bytes;
  }
  Expect(bytes == division.workspace_bytes && bytes <= total, "other bytes than its options'");
}

}  // namespace

void CallDivision(Random* random) {
  switch (random->Below(5)) {
    case 0: return CallFront(random, oocdnn_pareto_divisions, "oocdnn_pareto_divisions");
    case 1: return CallFront(random, oocdnn_even_divisions, "oocdnn_even_divisions");
    case 2: return CallBest(random);
    case 3: return CallSizes(random);
    default: return CallWorkspace(random);
  }
}

}  // namespace oocdnn::fuzz_capi
