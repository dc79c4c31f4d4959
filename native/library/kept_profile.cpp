#include "library/kept_profile.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/cache.hpp"
#include "base/log.hpp"

namespace oocdnn {
namespace {

std::string CachePath(const Provenance& of) {
  const std::string folder = CacheFolder();
  if (folder.empty()) return "";
  const uint64_t hash = Hash(of.machine + "\n" + of.driver + "\n" + of.engines);
  return folder + "/profile-" + std::string(kProfileVersion) +
         Format("-%016llx.txt", static_cast<unsigned long long>(hash));
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
  if (const std::string note = NoteOn(kept); warns == Warns::kYes && !note.empty()) {
    Log(LogLevel::kWarn, "the profile %s %s", file_.c_str(), note.c_str());
  }
  const bool of_this = kept.ok() && kept->of == of_;
  if (of_this ? !kept->Measured() : cached_ || !kept.ok()) return std::nullopt;
  return std::move(kept).value();
}

// What is unusual about it.
std::string KeptProfile::NoteOn(const Result<Profile>& kept) const {
  const bool of_this = kept.ok() && kept->of == of_;
  if (of_this && kept->Measured()) return "";
  if (of_this) return "is measured again: nobody has measured its copies";
  if (kept.ok() && !cached_) {
    return "speaks of another machine, driver, library or choice of engines, and plans rest on it "
           "as it is";
  }
  const std::string why =
      kept.ok() ? "it speaks of another machine, driver or library" : kept.status().message();
  return (cached_ ? "is measured again: " : "is ignored, and what is measured is not kept: ") + why;
}

Status KeptProfile::Write(const Profile& profile) const {
  if (file_.empty()) return {};
  const std::string text = ToText(profile);
  OOC_TRY(ParseProfile(text).status().With("it was to be kept in " + file_));
  OOC_TRY(CheckReplaceable());
  const std::optional<Profile> kept = Read(Warns::kNo);
  if (kept && kept->of != profile.of) {
    return Error(Code::kInvalidProblem, "%s speaks of another machine and stays as it is",
                 file_.c_str());
  }
  if (kept && kept->Calibrated() && !profile.Calibrated()) {
    return Error(
        Code::kInvalidProblem,
        "another process has calibrated this machine meanwhile (%s): begin again with what "
        "it measured",
        file_.c_str());
  }
  if (Keep(file_, text)) return {};
  return Error(Code::kFileError, "the profile cannot be written to %s", file_.c_str());
}

// In the cache directory nobody keeps anything of his own.
Status KeptProfile::CheckReplaceable() const {
  std::error_code error;
  const bool there = std::filesystem::exists(file_, error) || error;
  if (cached_ || !there || std::filesystem::file_size(file_, error) == 0) return {};
  const auto text = ReadKept(file_);
  const Status read =
      text ? ParseProfile(*text).status() : Error(Code::kFileError, "it cannot be read as a file");
  if (read.ok()) return {};
  return Error(Code::kFileError,
               "%s is there and no profile of this version (%s); name another file", file_.c_str(),
               read.message().c_str());
}

FileLock KeptProfile::Lock(std::chrono::milliseconds patience) {
  const std::string path = file_.empty() ? std::string() : file_ + ".lock";
  FileLock lock(path, {});
  if (lock.busy() && patience.count() > 0) {
    if (!std::exchange(waits_, true)) {
      Log(LogLevel::kInfo, "another process measures this machine and is waited for (%s)",
          path.c_str());
    }
    lock = FileLock(path, patience);
  }
  waits_ = waits_ && lock.busy();
  return lock;
}

}  // namespace oocdnn
