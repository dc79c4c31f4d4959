// A C function for what plans pin for a call.
#include <string>

#include "model/price/pins.hpp"
#include "model/text/plan_text.hpp"
#include "testing/export.hpp"
#include "testing/requests.hpp"

namespace oocdnn {

// Searches, all operands in pageable memory but those that `pinned` names by bits. `chosen`: by
// bits, what the best plan pins; `seconds`: of it, and then, by the bits of what is pinned, of the
// same tiles for each choice; `text`: of the plan. Only x, w and y may be there.
OOC_EXPORT int oocdnn_testing_pins(const Problem* problem, const int64_t* limits, int pinned,
                                   const char* profile_text, int64_t* chosen, double* seconds,
                                   char* text, int64_t capacity) {
  constexpr int kChoices = 8;
  Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return testing::Answer(profile.status(), text, capacity);
  PlanRequest request = testing::RequestOf(*problem, limits[0], "direct+invariant");
  request.pin_bytes = limits[1];
  for (int i = 0; i < kOperands; ++i) {
    const bool there = i < 3 && (pinned >> i & 1) != 0;
    request.tiers[i] = there ? Tier::kPinned : Tier::kPageable;
  }
  Result<PlanSearch> search = Search(request, profile.value());
  if (!search.ok()) return testing::Answer(search.status(), text, capacity);
  Candidate candidate = search->ranked.front().candidate;
  testing::CopyText(ToText(request, candidate), text, capacity);
  *chosen = 0;
  for (int i = 0; i < 3; ++i) *chosen |= candidate.pinned[i] ? int64_t{1} << i : 0;
  seconds[0] = search->ranked.front().cost.seconds;
  for (int choice = 0; choice < kChoices; ++choice) {
    for (int i = 0; i < 3; ++i) candidate.pinned[i] = (choice >> i & 1) != 0;
    seconds[1 + choice] = PriceOf(request, candidate, profile.value()).seconds;
  }
  return 0;
}

}  // namespace oocdnn
