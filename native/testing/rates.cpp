// A C function for the part of a profile that a request's prices rest on.
#include "model/price/rates.hpp"
#include "testing/export.hpp"
#include "testing/requests.hpp"

namespace oocdnn::testing {

// Beside so many busy GPUs. `rates` receives it as a profile's text.
OOC_EXPORT int oocdnn_testing_rates(const Problem* problem, const char* engines,
                                    const char* profile_text, int busy_gpus, char* rates,
                                    int64_t capacity) {
  Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), rates, capacity);
  profile->busy_gpus = busy_gpus;
  CopyText(ToText(RatesOf(profile.value(), RequestOf(*problem, 0, engines))), rates, capacity);
  return 0;
}

}  // namespace oocdnn::testing
