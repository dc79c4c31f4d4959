// Where profiles come from and where they are kept.
#include "library/calibrate.hpp"

#include <ctime>
#include <optional>
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

std::optional<Profile> ReadProfile(const std::string& file) {
  const auto text = ReadKept(file);
  if (!text) return std::nullopt;
  Result<Profile> kept = ParseProfile(*text);
  if (kept.ok()) return std::move(kept).value();
  Log(LogLevel::kWarn, "the profile %s is ignored and measured again: %s", file.c_str(),
      kept.status().message().c_str());
  return std::nullopt;
}

std::string KindOf(const Problem& problem) {
  return Profile::FlopsKey("", problem.dtype, problem.math, problem.direction);
}

}  // namespace

MachineProfile::MachineProfile(Device& device, const std::string& path)
    : device_(device), profile_(Guess(device)) {
  if (path == "none") return;
  const std::string machine = profile_.machine;
  file_ = path.empty() ? CachePath(machine) : path;
  std::optional<Profile> kept = ReadProfile(file_);
  if (kept && kept->machine != machine && path.empty()) {
    Log(LogLevel::kWarn,
        "the profile %s is ignored and measured again: it speaks of another machine",
        file_.c_str());
    kept.reset();
  }
  if (kept) {
    profile_ = *std::move(kept);
  } else {
    profile_.date = Today();
    const Status status = MeasureCopies(device, &profile_);
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
  const size_t known = profile_.flops.size();
  MeasureArithmetic(device_, problem, &profile_);
  if (profile_.flops.size() > known) Write();
  return profile_;
}

// What other processes have added meanwhile stays.
void MachineProfile::Write() {
  if (file_.empty()) return;
  Profile all = profile_;
  if (const auto kept = ReadProfile(file_); kept && kept->machine == all.machine) {
    all.flops.insert(kept->flops.begin(), kept->flops.end());
  }
  Keep(file_, ToText(all));
}

}  // namespace oocdnn
