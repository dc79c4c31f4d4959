#include "store/kept_profile.hpp"

#include <algorithm>
#include <utility>

#include "base/cache.hpp"
#include "base/files.hpp"
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

// A first measurement takes about as long; programs that begin together wait for one of them.
constexpr std::chrono::milliseconds kSilent(2000);

std::string FileOf(const std::string& path, const Provenance& of) {
  if (path == "none") return "";
  return path.empty() ? CachePath(of) : path;
}

}  // namespace

KeptProfile::KeptProfile(const std::string& path, const Provenance& of)
    : of_(of), cached_(path.empty()), file_(FileOf(path, of)) {}

std::optional<Profile> KeptProfile::Read(Warns warns) const {
  const Result<std::string> text = ReadKept(file_);
  if (text.ok() && text.value().empty()) return std::nullopt;
  Result<Profile> kept = text.ok() ? ParseProfile(text.value()) : text.status();
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
  const Status status = ReplaceFile(file_, text);
  return status.ok() ? status : Error(status.code(), "the profile %s", status.message().c_str());
}

// In the cache directory nobody keeps anything of his own.
Status KeptProfile::CheckReplaceable() const {
  if (cached_) return {};
  const Result<std::string> text = ReadKept(file_);
  if (text.ok() && text.value().empty()) return {};
  const Status read = text.ok() ? ParseProfile(text.value()).status() : text.status();
  if (read.ok()) return {};
  return Error(Code::kFileError,
               "%s is there and no profile of this version (%s); name another file", file_.c_str(),
               read.message().c_str());
}

FileLock KeptProfile::Lock(std::chrono::milliseconds patience) {
  const std::string path = file_.empty() ? std::string() : file_ + ".lock";
  const std::chrono::milliseconds silent = std::min(patience, kSilent);
  FileLock lock(path, silent);
  if (lock.busy() && patience.count() > 0) {
    if (!std::exchange(waits_, true)) {
      Log(LogLevel::kWarn,
          "another process measures this machine, or is stopped meanwhile, and is waited for: it "
          "holds %s",
          path.c_str());
    }
    lock = FileLock(path, patience - silent);
  }
  waits_ = waits_ && lock.busy();
  return lock;
}

}  // namespace oocdnn
