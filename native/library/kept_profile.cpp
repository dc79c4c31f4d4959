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

// Whole profiles are measured in half a minute; who hangs is not waited for.
constexpr std::chrono::seconds kPatience(60);

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
  Profile all = profile;
  const std::optional<Profile> kept = Read(Warns::kNever);
  if (kept && kept->of == profile.of) {
    if (kept->calibrated && !profile.calibrated) {
      return Error(Code::kInvalidProblem,
                   "another process has calibrated this machine meanwhile (%s): begin again with "
                   "what it measured",
                   file_.c_str());
    }
    if (kept->calibrated == profile.calibrated) all.Add(*kept);
  }
  if (Keep(file_, ToText(all))) return {};
  return Error(Code::kFileError, "the profile cannot be written to %s", file_.c_str());
}

FileLock KeptProfile::Lock() const {
  return {file_.empty() ? std::string() : file_ + ".lock", kPatience};
}

}  // namespace oocdnn
