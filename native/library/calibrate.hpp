// The constants of this machine: measured on the device when they are first needed, then kept in
// the user's cache directory.
#pragma once

#include <set>
#include <string>

#include "device/device.hpp"
#include "exec/tile_loop.hpp"
#include "model/profile.hpp"

namespace oocdnn {

class MachineProfile {
 public:
  // The kept profile of this device where there is one, else one of which the copies have been
  // measured now. Never fails: what cannot be measured keeps its built-in guess. `path` "" means
  // the cache directory; "none" measures nothing and keeps nothing. Measuring takes at most
  // `budget` bytes of device memory, or kLeastLimit where that is less: too few tell nothing.
  MachineProfile(Device& device, const std::string& path, int64_t budget);
  static constexpr int64_t kLeastLimit = int64_t{256} << 20;

  // Whether For(problem) would measure something, which takes device memory of its own.
  [[nodiscard]] bool Lacks(const Problem& problem) const;
  // With the rates of the problem's type and direction.
  const Profile& For(const Problem& problem);
  // Measures all types and directions with tiles of many sizes, as far as that has not been done,
  // and keeps each when it is done. kInterrupted where `progress` says so; kInvalidProblem where
  // nothing is kept, kFileError where the file cannot be written.
  Status Complete(const Progress& progress);
  // Where it is kept; "" nowhere.
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  Status Write();

  Device& device_;
  int64_t limit_;     // bytes that measuring may take of the device
  std::string file_;  // "": kept nowhere
  Profile profile_;
  bool grows_ = false;           // it is measured, and of this device
  std::set<std::string> asked_;  // kinds of problems
};

}  // namespace oocdnn
