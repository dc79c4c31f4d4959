// Where profiles come from and where they are kept.
#include "library/calibrate.hpp"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/cache.hpp"
#include "base/log.hpp"
#include "library/measure.hpp"

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

std::string MachineOf(Device& device) {
  std::string machine = device.capabilities().description;
  for (const EngineInfo& engine : device.engines()) machine += " " + engine.name;
  return machine;
}

std::string CachePath(const std::string& machine) {
  const std::string folder = CacheFolder();
  if (folder.empty()) return "";
  return folder + Format("/profile-%016llx.txt", static_cast<unsigned long long>(Hash(machine)));
}

Profile Guess(Device& device) {
  Profile guess;
  guess.machine = MachineOf(device);
  guess.shared_engines = device.capabilities().shared_engines;
  return guess;
}

// Leaves `profile` as it is where none is kept, or none of this `machine` ("": of any).
bool ReadProfile(const std::string& file, const std::string& machine, Profile* profile) {
  const auto text = ReadKept(file);
  if (!text) return false;
  Result<Profile> kept = ParseProfile(*text);
  if (kept.ok() && (machine.empty() || kept->machine == machine)) {
    *profile = std::move(kept).value();
    return true;
  }
  Log(LogLevel::kWarn, "the profile %s is ignored and measured again: %s", file.c_str(),
      kept.ok() ? "it speaks of another machine" : kept.status().message().c_str());
  return false;
}

std::string KindOf(const Problem& problem) {
  return Profile::FlopsKey(IsWide(problem) ? "wide" : "", problem.dtype, problem.math,
                           problem.direction);
}

}  // namespace

MachineProfile::MachineProfile(Device& device, const std::string& path, int64_t budget)
    : device_(device), limit_(std::max(budget, kLeastLimit)), profile_(Guess(device)) {
  if (path == "none") return;
  const std::string machine = profile_.machine;
  file_ = path.empty() ? CachePath(machine) : path;
  if (!ReadProfile(file_, path.empty() ? machine : "", &profile_)) {
    profile_.date = Today();
    const Status status = MeasureCopies(device, limit_, &profile_);
    profile_.measured = status.ok();
    if (!status.ok()) {
      Log(LogLevel::kWarn,
          "plans rest on guesses about this machine, as it could not be measured: %s",
          status.message().c_str());
    }
  }
  grows_ = profile_.measured && profile_.machine == machine;
}

bool MachineProfile::Lacks(const Problem& problem) const {
  return grows_ && !asked_.contains(KindOf(problem));
}

const Profile& MachineProfile::For(const Problem& problem) {
  if (!Lacks(problem)) return profile_;
  asked_.insert(KindOf(problem));
  const Profile before = profile_;
  MeasureArithmetic(device_, problem, TileGrid::kFew, limit_, &profile_);
  if (profile_ != before) static_cast<void>(Write());
  return profile_;
}

Status MachineProfile::Complete(const Progress& progress) {
  if (file_.empty() || !grows_) {
    return Error(Code::kInvalidProblem, "there is no profile of this machine to complete: %s",
                 file_.empty() ? "nothing is kept where it is \"none\""
                               : "the file speaks of another, or could not be measured");
  }
  constexpr struct {
    DType dtype;
    Math math;
  } kTypes[] = {{DType::kFloat32, Math::kFp32},
                {DType::kFloat32, Math::kTf32},
                {DType::kBFloat16, Math::kFp32},
                {DType::kFloat16, Math::kFp32},
                {DType::kFloat64, Math::kFp32}};
  constexpr int64_t kAll = std::size(kTypes) * kDirections;
  int64_t done = 0;
  for (const auto& type : kTypes) {
    for (int i = 0; i < kDirections; ++i) {
      Problem problem;
      problem.dtype = type.dtype;
      problem.math = type.math;
      problem.direction = static_cast<Direction>(i);
      MeasureArithmetic(device_, problem, TileGrid::kAll, limit_, &profile_);
      asked_.insert(KindOf(problem));
      OOC_TRY(Write());
      if (progress && !progress(++done, kAll)) {
        return Error(Code::kInterrupted, "%lld of %lld kinds of arithmetic are measured and kept",
                     static_cast<long long>(done), static_cast<long long>(kAll));
      }
    }
  }
  return {};
}

// What other processes have added meanwhile stays.
Status MachineProfile::Write() {
  if (file_.empty()) return {};
  Profile all = profile_, kept;
  if (ReadProfile(file_, all.machine, &kept)) {
    all.flops.insert(kept.flops.begin(), kept.flops.end());
    for (const auto& [key, rates] : kept.tiles) all.tiles[key].insert(rates.begin(), rates.end());
  }
  if (Keep(file_, ToText(all))) return {};
  return Error(Code::kFileError, "the profile cannot be written to %s", file_.c_str());
}

}  // namespace oocdnn
