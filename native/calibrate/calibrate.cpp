// Where profiles come from.
#include "calibrate/calibrate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/log.hpp"
#include "base/numbers.hpp"
#include "calibrate/measure.hpp"
#include "geom/engines.hpp"
#include "geom/parts.hpp"
#include "model/price/cost.hpp"
#include "model/search/refine.hpp"
#include "planner/stopwatch.hpp"

namespace oocdnn {
namespace {

std::string Today() {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  if (gmtime_r(&now, &utc) == nullptr) return "";
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return date;
}

Provenance ProvenanceOf(Device& device) {
  const Capabilities& device_is = device.capabilities();
  Provenance of{device_is.description, device_is.driver.empty() ? "none" : device_is.driver, ""};
  for (const EngineInfo& engine : device.engines()) {
    of.engines += (of.engines.empty() ? "" : ", ") + LabelOf(engine);
  }
  return of;
}

Profile Guess(Device& device) {
  Profile guess;
  guess.of = ProvenanceOf(device);
  guess.shared_engines = device.capabilities().shared_engines;
  return guess;
}

// Between two looks at whether who waits was interrupted.
constexpr std::chrono::milliseconds kGlance(100);

// The thread that it lives in calibrates. Its callbacks may use other contexts.
class Calibrating {
 public:
  Calibrating() { here_ = true; }
  ~Calibrating() { here_ = false; }
  Calibrating(const Calibrating&) = delete;
  Calibrating& operator=(const Calibrating&) = delete;
  static bool InThisThread() { return here_; }

 private:
  static thread_local bool here_;
};
thread_local bool Calibrating::here_ = false;

std::string KindOf(const Problem& problem) {
  const std::string channels = IsWide(problem)                  ? "wide"
                               : HasSingleInputs(problem.shape) ? "single"
                               : HasFewInputs(problem.shape)    ? NumberText(problem.shape.c)
                                                                : "";
  return Profile::FlopsKey(channels, problem.dtype, problem.math, problem.direction,
                           problem.NeedsFinish());
}

// A problem for each part of a joint problem: its own direction, and each further gradient.
std::vector<Problem> SinglesOf(const Problem& problem) {
  std::vector<Problem> singles;
  for (const Part& part : PartsOf(problem)) {
    singles.push_back(problem);
    singles.back().direction = part.direction;
    singles.back().also = {};
  }
  return singles;
}

}  // namespace

std::string ToJson(const Refinement& refinement) {
  return Format(
      "{\"rate\": %s, \"before\": %.17g, \"after\": %.17g, \"measured_seconds\": %.17g, "
      "\"predicted_seconds\": %.17g, \"refined_seconds\": %.17g, \"samples\": %lld, "
      "\"spread\": %.17g}",
      JsonString(refinement.rate).c_str(), refinement.before, refinement.after,
      refinement.measured_seconds, refinement.predicted_seconds, refinement.refined_seconds,
      static_cast<long long>(refinement.known.samples), refinement.known.spread);
}

MachineProfile::MachineProfile(Device& device, const std::string& path, int64_t budget,
                               int busy_gpus, std::chrono::milliseconds patience)
    : device_(device),
      limit_(std::max(BesideCode(budget), kLeastLimit)),
      kept_(path, ProvenanceOf(device)),
      profile_(Guess(device)),
      all_patience_(patience),
      patience_(patience) {
  profile_.busy_gpus = busy_gpus;
  if (path == "none") return;
  const Provenance here = profile_.of;
  Open();
  grows_ = profile_.Measured() && profile_.of == here;
}

void MachineProfile::Open() {
  std::optional<Profile> kept = kept_.Read(KeptProfile::Warns::kYes);
  if (kept) return Use(*kept);
  const FileLock turn = TakeTurn();
  kept = kept_.Read(KeptProfile::Warns::kNo);  // who was waited for may have measured
  if (kept) return Use(*kept);
  profile_.date = Today();
  const Status status = MeasureCopies(device_, limit_, &profile_);
  if (status.ok()) return Keep(turn);
  Log(LogLevel::kWarn, "plans rest on guesses about this machine, as it could not be measured: %s",
      status.message().c_str());
}

// First calls wait for whoever measures, but for one that hangs only once; in the callback of a
// calibration, which has the turn, they do not.
FileLock MachineProfile::TakeTurn() {
  if (Calibrating::InThisThread()) return kept_.Lock({});
  FileLock turn = kept_.Lock(std::exchange(patience_, {}));
  if (!turn.busy()) patience_ = all_patience_;
  return turn;
}

// Of first calls, which go on without a file. Who has the turn has read what is kept, and writes.
void MachineProfile::Keep(const FileLock& turn) {
  if (turn.busy()) {
    const LogLevel level = std::exchange(alone_, true) ? LogLevel::kDebug : LogLevel::kWarn;
    return Log(level, "what was measured is not kept in %s: another process still holds the lock",
               file().c_str());
  }
  const Status status = kept_.Write(profile_);
  if (!status.ok())
    Log(LogLevel::kInfo, "what was measured is not kept: %s", status.message().c_str());
}

// Which kinds were asked says nothing of another profile.
void MachineProfile::Use(const Profile& profile) {
  const int busy_gpus = profile_.busy_gpus;
  profile_ = profile;
  profile_.busy_gpus = busy_gpus;
  asked_.clear();
}

// What other processes have measured meanwhile need not be measured again, and is newer. What first
// calls have measured here of a calibrated machine is in no file; who refines goes on without it.
void MachineProfile::Refresh(bool refines) {
  std::optional<Profile> kept = kept_.Read(KeptProfile::Warns::kNo);
  if (!kept || kept->of != profile_.of) return;
  if (kept->Calibrated() && (refines || !profile_.Calibrated())) return Use(*kept);
  if (kept->Calibrated() != profile_.Calibrated()) return;
  kept->Add(profile_);
  kept->busy_gpus = profile_.busy_gpus;
  profile_ = *std::move(kept);
}

// Goes on with a calibration that is kept, and with nothing else: a file that was deleted is to be
// measured again.
Status MachineProfile::Begin() {
  const std::optional<Profile> kept = kept_.Read(KeptProfile::Warns::kNo);
  if (kept && kept->of == profile_.of && kept->Calibrated()) {
    Use(*kept);
    return {};
  }
  Profile anew = Guess(device_);
  anew.date = Today();
  anew.calibration = Calibration::kBegun;
  OOC_TRY(MeasureCopies(device_, limit_, &anew));
  Use(anew);
  return {};
}

bool MachineProfile::Lacks(const Problem& problem) const {
  if (!grows_ || profile_.calibration == Calibration::kComplete) return false;
  const std::vector<Problem> singles = SinglesOf(problem);
  return std::any_of(singles.begin(), singles.end(),
                     [this](const Problem& single) { return LacksSingle(single); });
}

bool MachineProfile::LacksSingle(const Problem& single) const {
  return !asked_.contains(KindOf(single)) && LacksArithmetic(device_, single, profile_);
}

// What is measured beside whatever else runs goes into no file that a calibration is to go on with.
const Profile& MachineProfile::For(const Problem& problem) {
  if (!Lacks(problem)) return profile_;
  const FileLock turn = TakeTurn();
  Refresh(false);
  const Profile before = profile_;
  for (const Problem& single : SinglesOf(problem)) {
    if (!LacksSingle(single)) continue;
    asked_.insert(KindOf(single));
    const Status status = MeasureArithmetic(device_, single, TileGrid::kFew, limit_, &profile_);
    if (!status.ok()) {
      Log(LogLevel::kWarn, "plans rest on guesses, as this could not be measured: %s",
          status.message().c_str());
    }
  }
  if (profile_ != before && !profile_.Calibrated()) Keep(turn);
  return profile_;
}

Status MachineProfile::CheckGrows() const {
  if (!file().empty() && grows_) return {};
  return Error(Code::kInvalidProblem, "there is no profile of this machine to complete: %s",
               file().empty() ? "nothing is kept where it is \"none\""
                              : "the file speaks of another, or could not be measured");
}

Status MachineProfile::Complete(const DeviceOptions& options, const Progress& progress) {
  OOC_TRY(CheckGrows());
  if (Calibrating::InThisThread()) {
    return Error(Code::kDeviceError,
                 "oocdnn_calibrate was called from the progress callback of another calibration, "
                 "which measures this machine: call after that one has returned");
  }
  const Calibrating calibrating;
  FileLock turn = kept_.Lock({});
  while (turn.busy()) {
    if (progress && !progress(0, 1)) {
      return Error(Code::kInterrupted, "another process measures this machine");
    }
    turn = kept_.Lock(kGlance);
  }
  OOC_TRY(Begin());
  // A profile may be older than these rates.
  OOC_TRY(MeasurePasses(device_, limit_, &profile_));
  MeasurePinning(device_, &profile_);
  OOC_TRY(kept_.Write(profile_));  // its folder is there then
  const std::string folder = std::filesystem::path(file()).parent_path();
  OOC_TRY(MeasureStaging(device_, limit_, folder.empty() ? "." : folder, &profile_));
  constexpr struct {
    DType dtype;
    Math math;
  } kTypes[] = {{DType::kFloat32, Math::kFp32},   {DType::kFloat32, Math::kTf32},
                {DType::kFloat32, Math::kFp32x3}, {DType::kFloat32, Math::kFp32Fast},
                {DType::kBFloat16, Math::kFp32},  {DType::kFloat16, Math::kFp32},
                {DType::kFloat64, Math::kFp32}};
  const int64_t others = CountPeers(device_);
  const int64_t all = others + static_cast<int64_t>(std::size(kTypes)) * kDirections;
  int64_t done = 0;
  const auto measured = [&]() -> Status {
    OOC_TRY(kept_.Write(profile_));
    if (!progress || progress(++done, all)) return {};
    return Error(Code::kInterrupted, "%lld of %lld steps of measuring are done and kept",
                 static_cast<long long>(done), static_cast<long long>(all));
  };
  OOC_TRY(MeasureBeside(device_, options, limit_, measured, &profile_));
  done = others;  // whether or not they could be had
  for (const auto& type : kTypes) {
    for (int i = 0; i < kDirections; ++i) {
      Problem problem;
      problem.dtype = type.dtype;
      problem.math = type.math;
      problem.direction = static_cast<Direction>(i);
      Status status = MeasureArithmetic(device_, problem, TileGrid::kAll, limit_, &profile_);
      if (!status.ok()) OOC_TRY(kept_.Write(profile_));
      OOC_TRY(std::move(status));
      asked_.insert(KindOf(problem));
      OOC_TRY(measured());
    }
  }
  profile_.calibration = Calibration::kComplete;
  return kept_.Write(profile_);
}

Result<Refinement> MachineProfile::Refine(const PlanRequest& request, const Candidate& candidate,
                                          const std::vector<double>& busy_seconds) {
  OOC_TRY(CheckGrows());
  const bool timed = std::all_of(busy_seconds.begin(), busy_seconds.end(), [](double seconds) {
    return std::isfinite(seconds) && seconds > 0.0;
  });
  if (busy_seconds.empty() || !timed) {
    return Error(Code::kInvalidProblem, "no run was timed that the profile could agree with");
  }
  const FileLock turn = TakeTurn();
  if (turn.busy()) {
    return Error(Code::kFileError,
                 "another process measures this machine, so that nothing is written to %s: refine "
                 "again when it has ended",
                 file().c_str());
  }
  Refresh(true);
  const Timing busy = TimingOf(busy_seconds);
  const Cost before = PriceOf(request, candidate, profile_);
  Profile refined = profile_;
  Refinement made;
  made.known = busy.evidence();
  made.before = RateOfTile(request, candidate, profile_).rate;
  const double run = RunSecondsOf(request, candidate, profile_, busy.seconds);
  made.rate = oocdnn::Refine(request, candidate, run, made.known, &refined);
  made.after = RateOfTile(request, candidate, refined).rate;
  const auto steps = static_cast<double>(before.steps);
  made.measured_seconds = busy.seconds / steps;
  made.predicted_seconds = before.compute_seconds / steps;
  made.refined_seconds = PriceOf(request, candidate, refined).compute_seconds / steps;
  OOC_TRY(kept_.Write(refined));
  profile_ = std::move(refined);
  return made;
}

}  // namespace oocdnn
