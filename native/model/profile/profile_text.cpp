// The text form of a profile. Reading and writing of the file is the library's.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <set>
#include <string_view>

#include "geom/words.hpp"
#include "model/profile/profile.hpp"
#include "model/profile/profile_rates.hpp"

namespace oocdnn {
namespace {

constexpr std::string_view kMagic = "oocdnn-profile ", kEnd = "end";
constexpr std::string_view kUnmeasured = "unmeasured", kMeasured = "measured";
constexpr std::string_view kSamples = "samples ", kSpread = " spread ", kUnknown = "unknown";
constexpr std::string_view kFlag = "shared_engines", kFlagWords[] = {"false", "true"};
constexpr std::string_view kCalibration = "calibration";
constexpr std::string_view kCalibrationWords[] = {"none", "begun", "complete"};
constexpr const char* kTexts[] = {"machine", "driver", "engines", "date"};
constexpr size_t kKeys = std::size(kTexts) + 2 + std::size(kPlainRates);

// Where the text of that key is; null where it is none's. `Some`: Profile, const or not.
template <class Some>
auto TextOf(Some& profile, std::string_view key) {
  auto* const found = key == "machine"   ? &profile.of.machine
                      : key == "driver"  ? &profile.of.driver
                      : key == "engines" ? &profile.of.engines
                                         : &profile.date;
  const bool known = std::find(std::begin(kTexts), std::end(kTexts), key) != std::end(kTexts);
  return known ? found : nullptr;
}

// Line breaks, and '=' in keys, would be taken for the format's own.
std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '=': out += "\\e"; break;
      default: out += c;
    }
  }
  return out;
}

std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    out += c == 'n' ? '\n' : c == 'r' ? '\r' : c == 'e' ? '=' : c;
  }
  return out;
}

std::string EvidenceText(const Profile& profile, const std::string& name) {
  const auto found = profile.evidence.find(name);
  if (found == profile.evidence.end()) return std::string(kUnmeasured);
  const Evidence& known = found->second;
  if (known.samples == 0) return std::string(kMeasured);
  const std::string spread = known.spread < 0 ? std::string(kUnknown) : NumberText(known.spread);
  return std::string(kSamples) + NumberText(known.samples) + std::string(kSpread) + spread;
}

void PutLine(std::string* text, std::string_view key, std::string_view value) {
  text->append(key).append(" = ").append(value).append("\n");
}

Status BadValue(const std::string& key, std::string_view value) {
  return Error(Code::kFileError,
               "the profile's value '%s' of '%s' is not usable; delete the file "
               "to have the machine measured again",
               std::string(value).c_str(), key.c_str());
}

bool ReadRate(std::string_view text, bool may_be_zero, double* rate) {
  const double least = may_be_zero ? 0.0 : kLeastInProfile;
  return ReadNumber(text, rate) && *rate >= least && *rate <= kMostInProfile;
}

bool ReadSpread(std::string_view text, double* spread) {
  return ReadNumber(text, spread) && std::isfinite(*spread) && *spread >= 0.0;
}

bool ReadSamples(std::string_view text, Evidence* known) {
  if (!text.starts_with(kSamples)) return false;
  text.remove_prefix(kSamples.size());
  const size_t word = text.find(kSpread);
  if (word == std::string_view::npos) return false;
  const std::string_view spread = text.substr(word + kSpread.size());
  if (!ReadNumber(text.substr(0, word), &known->samples) || known->samples < 1) return false;
  return spread == kUnknown || ReadSpread(spread, &known->spread);
}

// What follows a rate, and what it says of it.
bool ReadEvidence(std::string_view text, const std::string& name, Profile* profile) {
  if (text == kUnmeasured) return true;
  Evidence known;
  if (text != kMeasured && !ReadSamples(text, &known)) return false;
  profile->evidence[name] = known;
  return true;
}

Result<double*> TileRate(const std::string& name, Profile* profile) {
  const char *at = name.data() + std::strlen(kTileWord), *end = name.data() + name.size();
  TileSize size{};
  for (int64_t* number : {&size.channels, &size.outputs}) {
    const auto [stop, error] = std::from_chars(at, end, *number);
    if (error != std::errc() || *number < 1 || stop == end || *stop != ' ') {
      return Error(Code::kFileError, "the profile's '%s' names no tile", name.c_str());
    }
    at = stop + 1;
  }
  return &profile->tiles[{at, end}][size];
}

// Where the rate of that name is, made where it has no place yet.
Result<double*> PlaceOf(const std::string& name, Profile* profile) {
  if (name.starts_with(kFlopsWord)) return &profile->flops[name.substr(std::strlen(kFlopsWord))];
  if (name.starts_with(kTileWord)) return TileRate(name, profile);
  if (name.starts_with(kWireWord)) return &profile->wires[name.substr(std::strlen(kWireWord))];
  if (name.starts_with(kOnceWord)) return &profile->once[name.substr(std::strlen(kOnceWord))];
  for (const PlainRate& plain : kPlainRates) {
    if (name == plain.name) return &(profile->*plain.field);
  }
  return Error(Code::kFileError, "the profile has the unknown key '%s'", name.c_str());
}

bool MayBeZero(const std::string& name) {
  if (name.starts_with(kWireWord)) return name.ends_with("row_bytes") || name.ends_with("/hop");
  return std::any_of(std::begin(kPlainRates), std::end(kPlainRates), [&](const PlainRate& plain) {
    return name == plain.name && plain.may_be_zero;
  });
}

// One of the words, by their order.
template <class Value, size_t count>
Status ReadWord(const std::string& name, std::string_view text,
                const std::string_view (&words)[count], Value* value) {
  const auto* const found = std::find(std::begin(words), std::end(words), text);
  if (found == std::end(words)) return BadValue(name, text);
  *value = static_cast<Value>(found - words);
  return {};
}

Status ReadEntry(const std::string& name, std::string_view value, Profile* profile) {
  if (std::string* text = TextOf(*profile, name)) {
    *text = Unescape(value);
    return {};
  }
  if (name == kFlag) return ReadWord(name, value, kFlagWords, &profile->shared_engines);
  if (name == kCalibration) {
    return ReadWord(name, value, kCalibrationWords, &profile->calibration);
  }
  OOC_ASSIGN(double* const rate, PlaceOf(name, profile));
  const size_t space = value.find(' ');
  const bool usable = space != std::string_view::npos &&
                      ReadRate(value.substr(0, space), MayBeZero(name), rate) &&
                      ReadEvidence(value.substr(space + 1), name, profile);
  return usable ? Status() : BadValue(name, value);
}

Status CheckHeader(std::string_view line) {
  if (!line.starts_with(kMagic)) {
    return Error(Code::kFileError, "the profile does not begin with '%s%s': it is damaged",
                 std::string(kMagic).c_str(), std::string(kProfileVersion).c_str());
  }
  line.remove_prefix(kMagic.size());
  if (line == kProfileVersion) return {};
  return Error(Code::kFileError,
               "the profile is of version %s, and this library reads version %s; delete the file "
               "to have the machine measured again",
               std::string(line).c_str(), std::string(kProfileVersion).c_str());
}

}  // namespace

std::string ToText(const Profile& profile) {
  std::string text = std::string(kMagic) + std::string(kProfileVersion) + "\n";
  for (const char* key : kTexts) PutLine(&text, key, Escape(*TextOf(profile, key)));
  PutLine(&text, kFlag, kFlagWords[profile.shared_engines ? 1 : 0]);
  PutLine(&text, kCalibration, kCalibrationWords[static_cast<size_t>(profile.calibration)]);
  VisitRates(profile, [&](const std::string& name, double rate) {
    PutLine(&text, Escape(name), NumberText(rate) + " " + EvidenceText(profile, name));
  });
  return text.append(kEnd).append("\n");
}

Result<Profile> ParseProfile(const std::string& text) {
  std::string_view rest = text;
  const auto next_line = [&rest] {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return line;
  };
  OOC_TRY(CheckHeader(next_line()));
  Profile profile;
  std::set<std::string> names;
  bool complete = false;
  while (!rest.empty() && !complete) {
    const std::string_view line = next_line();
    complete = line == kEnd;
    if (complete || line.empty()) continue;
    const size_t sign = line.find(" = ");
    if (sign == std::string_view::npos) {
      return Error(Code::kFileError, "the profile's line '%s' is not 'key = value'",
                   std::string(line).c_str());
    }
    const std::string name = Unescape(line.substr(0, sign));
    if (!names.insert(name).second) {
      return Error(Code::kFileError, "the profile has '%s' twice", name.c_str());
    }
    OOC_TRY(ReadEntry(name, line.substr(sign + 3), &profile));
  }
  size_t tables = profile.flops.size() + profile.wires.size() + profile.once.size();
  for (const auto& [key, rates] : profile.tiles) tables += rates.size();
  if (!complete || names.size() != kKeys + tables) {
    return Error(Code::kFileError, "the profile is cut off or lacks a key");
  }
  return profile;
}

}  // namespace oocdnn
