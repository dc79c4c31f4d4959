// KeptProfile: the file in which a machine's profile goes from one process to the next.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/file_lock.hpp"
#include "base/status.hpp"
#include "model/profile/profile.hpp"

namespace oocdnn {

class KeptProfile {
 public:
  // `path` "": a file in the user's cache directory, by what `of` says; "none": nowhere.
  KeptProfile(const std::string& path, const Provenance& of);

  // Where it is; "" nowhere.
  [[nodiscard]] const std::string& file() const { return file_; }
  // None where nothing is kept that is of this version and whole, and, if it is of this machine,
  // Measured(). What lies in the cache directory is of this machine; of a path that somebody gave,
  // whoever it is of. Warns of what is ignored, and of what is used though of another machine.
  enum class Warns { kNo, kYes };
  [[nodiscard]] std::optional<Profile> Read(Warns warns) const;
  // Replaces the kept profile. A caller that changes the one that it read holds the lock. One that
  // is not calibrated never takes the place of one that is: kInvalidProblem.
  // kFileError where the file cannot be written, where it could not be read again, and where
  // somebody gave the path of what is no profile of this version, which stays as it is.
  [[nodiscard]] Status Write(const Profile& profile) const;
  // Held while rates are measured, so that no two processes disturb each other's. A wait for it is
  // logged once. See FileLock.
  [[nodiscard]] FileLock Lock(std::chrono::milliseconds patience);

 private:
  [[nodiscard]] std::string NoteOn(const Result<Profile>& kept) const;
  [[nodiscard]] Status CheckReplaceable() const;

  const Provenance of_;
  const bool cached_;  // in the cache directory
  std::string file_;
  bool waits_ = false;  // it was said that somebody is waited for, who has it still
};

}  // namespace oocdnn
