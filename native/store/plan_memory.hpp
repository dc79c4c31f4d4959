// PlanMemory: the plans that were found on this machine, by this process and others.
//
// The file is read once, here; what is found goes into it when the memory ends, or the process.
// In between nothing touches the file. A forked child writes what it finds itself.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/process_lock.hpp"
#include "device/device.hpp"
#include "store/plan_file.hpp"

namespace oocdnn {

class PlanMemory {
 public:
  // `machine`: whose plans they are, and of which libraries. `file` "": remembers nothing. A file
  // that cannot be read is ignored, with one warning in a process; one that is of something else
  // for good.
  PlanMemory(std::string file, std::string machine);
  PlanMemory(const PlanMemory&) = delete;
  PlanMemory& operator=(const PlanMemory&) = delete;
  // Writes. What cannot be written is lost, with one warning in a process.
  ~PlanMemory();

  [[nodiscard]] bool remembers() const { return !file_.empty(); }
  // The plan of this key for this budget, or that none fits. A plan for a little more, such as an
  // automatic budget was the last time, is one for this where it fits; where none fits into more,
  // none does into this.
  std::optional<RememberedPlan> Find(uint64_t key, int64_t budget);
  void Put(uint64_t key, int64_t budget, RememberedPlan plan);
  // That Find(key, budget) gave a plan that is none, and why; one warning in a process.
  void Refute(uint64_t key, int64_t budget, const Status& why);
  void Write();
  void Forget();
  [[nodiscard]] const std::string& file() const { return file_; }
  // Where plans are remembered and how many, or why they are not and what helps.
  [[nodiscard]] Component Report();

 private:
  PlanTable::const_iterator Locate(uint64_t key, int64_t budget) const;
  // What a parent has not written is not the child's to write.
  void EnterProcess();
  // From the file, when it is written.
  void Drop(const PlanKey& key);

  std::string file_;
  Status refused_;  // why nothing is remembered though somebody wanted it
  const std::string machine_;
  ProcessLock lock_;  // of what follows
  pid_t process_ = getpid();
  PlanTable table_, unwritten_;
  std::vector<PlanKey> dropped_;
};

// Removes the file of remembered plans, with what memories in this process have of it. Plans that
// contexts already follow stay.
Status ForgetPlans(const std::string& file);

}  // namespace oocdnn
