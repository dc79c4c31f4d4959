// The file of remembered plans: a table in SQLite that many processes read and write.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace oocdnn {

struct RememberedPlan {
  std::string problem;       // for people
  std::string plan;          // see model/text/plan_text.hpp; "": none fits
  int64_t bytes = 0;         // that it books; where none fits, a budget that works
  double run_seconds = 0.0;  // of a tile's convolution, where a run was timed
};

// A machine's plans by their keys and the budgets that they were found for.
using PlanKey = std::pair<uint64_t, int64_t>;
using PlanTable = std::map<PlanKey, RememberedPlan>;

// Where plans are kept when nobody says: in the user's cache directory; "" without one.
std::string DefaultPlanFile();

// A file that is there and of something else is left as it is by all of these, with
// kInvalidProblem.

// What the file has of this machine; nothing where there is no file. Fails with what SQLite fails
// with, or where there is no SQLite.
Result<PlanTable> ReadPlans(const std::string& file, const std::string& machine);

// Changes the file by all of it or nothing: `found` come in, also in the place of others, those of
// `dropped` go, and so do the oldest where there are too many of all machines. The file and its
// folders are made where they are missing, the file anew where it is damaged. Fails as ReadPlans.
Status WritePlans(const std::string& file, const std::string& machine, const PlanTable& found,
                  const std::vector<PlanKey>& dropped);

// Removes the file. kFileError where that cannot be done.
Status RemovePlans(const std::string& file);

}  // namespace oocdnn
