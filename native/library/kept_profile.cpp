#include "library/kept_profile.hpp"

#include <utility>

#include "base/cache.hpp"
#include "base/log.hpp"

namespace oocdnn {
namespace {

std::string CachePath(const Provenance& of) {
  const std::string folder = CacheFolder();
  if (folder.empty()) return "";
  const uint64_t hash = Hash(of.machine + "\n" + of.driver + "\n" + of.engines);
  return folder + Format("/profile-%016llx.txt", static_cast<unsigned long long>(hash));
}

std::string FileOf(const std::string& path, const Provenance& of) {
  if (path == "none") return "";
  return path.empty() ? CachePath(of) : path;
}

}  // namespace

KeptProfile::KeptProfile(const std::string& path, const Provenance& of)
    : of_(of), cached_(path.empty()), file_(FileOf(path, of)) {}

std::optional<Profile> KeptProfile::Read(Warns warns) const {
  const auto text = ReadKept(file_);
  if (!text) return std::nullopt;
  Result<Profile> kept = ParseProfile(*text);
  if (kept.ok() && (!cached_ || kept->of == of_)) return std::move(kept).value();
  if (warns == Warns::kWhereIgnored) {
    Log(LogLevel::kWarn, "the profile %s is ignored and measured again: %s", file_.c_str(),
        kept.ok() ? "it speaks of another machine, driver or library"
                  : kept.status().message().c_str());
  }
  return std::nullopt;
}

Status KeptProfile::Write(const Profile& profile) const {
  if (file_.empty()) return {};
  const std::optional<Profile> kept = Read(Warns::kNever);
  if (kept && kept->of == profile.of && kept->Calibrated() && !profile.Calibrated()) {
    return Error(
        Code::kInvalidProblem,
        "another process has calibrated this machine meanwhile (%s): begin again with what "
        "it measured",
        file_.c_str());
  }
  if (Keep(file_, ToText(profile))) return {};
  return Error(Code::kFileError, "the profile cannot be written to %s", file_.c_str());
}

FileLock KeptProfile::Lock(std::chrono::milliseconds patience) const {
  const std::string path = file_.empty() ? std::string() : file_ + ".lock";
  FileLock lock(path, {});
  if (!lock.busy() || patience.count() == 0) return lock;
  Log(LogLevel::kInfo, "another process measures this machine and is waited for (%s)",
      path.c_str());
  return {path, patience};
}

}  // namespace oocdnn
