// The constants of this machine: measured on the device when they are first needed, then kept in
// the user's cache directory.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "backends/backends.hpp"
#include "device/device.hpp"
#include "exec/tile_loop.hpp"
#include "model/plan.hpp"
#include "store/kept_profile.hpp"

namespace oocdnn {

// How the rate of one tile was refined. Seconds are of one tile's share of what computes in a call.
struct Refinement {
  std::string rate;                  // its name, see model/profile/profile_rates.hpp
  double before = 0.0, after = 0.0;  // operations per second
  double predicted_seconds = 0.0, refined_seconds = 0.0;
  double measured_seconds = 0.0;  // of the fastest run
  Evidence known;
};
std::string ToJson(const Refinement& refinement);

class MachineProfile {
 public:
  // The kept profile of this device where there is one (see KeptProfile), else one of which the
  // copies have been measured now. Never fails: what cannot be measured keeps its built-in guess.
  // `path` "none" measures nothing and keeps nothing. Measuring takes at most `budget` bytes of
  // device memory, or kLeastLimit where that is less: too few tell nothing. `busy_gpus`: see
  // Profile; what is kept stays as it was measured, alone. Processes take
  // turns to measure; who has waited for `patience` in vain measures without a turn, and keeps
  // nothing of it.
  MachineProfile(Device& device, const std::string& path, int64_t budget, int busy_gpus,
                 std::chrono::milliseconds patience = kPatience);
  static constexpr int64_t kLeastLimit = int64_t{256} << 20;
  static constexpr std::chrono::milliseconds kPatience{10000};

  // Whether For(problem) would measure something, which takes device memory of its own.
  [[nodiscard]] bool Lacks(const Problem& problem) const;
  // The profile with the rates of the problem's type, in its direction and in those of the
  // gradients that it also computes. Where they cannot be measured, there is a warning.
  const Profile& For(const Problem& problem);
  // Measures the copies, the wires beside neighbours (MeasureBeside, `options`), and all types and
  // directions with tiles of many sizes, and keeps each when it is done. What first calls have
  // measured goes; what an earlier call of this has measured stays. kInterrupted where `progress`
  // says so; kInvalidProblem where nothing is kept, kFileError where the file cannot be written,
  // and as the device fails, which a later call goes on from.
  Status Complete(const DeviceOptions& options, const Progress& progress);
  // Has the candidate's rate agree with calls in which what computes was busy for so many seconds
  // each, and keeps that. Fails as Complete does, with kInvalidProblem where no time is given, and
  // with kFileError where another process still measures after a while.
  Result<Refinement> Refine(const PlanRequest& request, const Candidate& candidate,
                            const std::vector<double>& busy_seconds);
  // Where it is kept; "" nowhere.
  [[nodiscard]] const std::string& file() const { return kept_.file(); }

 private:
  void Open();
  // Lacks, of a problem that computes one gradient or y alone.
  [[nodiscard]] bool LacksSingle(const Problem& single) const;
  void Use(const Profile& profile);
  [[nodiscard]] Status CheckGrows() const;
  FileLock TakeTurn();
  void Keep(const FileLock& turn);
  void Refresh(bool refines);
  Status Begin();

  Device& device_;
  int64_t limit_;  // bytes that measuring may take of the device
  KeptProfile kept_;
  Profile profile_;
  const std::chrono::milliseconds all_patience_;
  std::chrono::milliseconds patience_;  // that is left
  bool grows_ = false;                  // it is measured, and of this device
  bool alone_ = false;                  // it was said that nothing is kept
  std::set<std::string> asked_;         // kinds of problems that are fully measured
};

}  // namespace oocdnn
