// The text form of a profile and the fallbacks of its rates. Reading and writing of the file is the
// library's. Numbers go through to_chars and from_chars, which no locale can change.
#include "model/profile.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>

namespace oocdnn {
namespace {

constexpr std::string_view kHeader = "oocdnn-profile 6";
constexpr std::string_view kEnd = "end";
constexpr std::string_view kFlopsPrefix = "flops ", kTilePrefix = "tile ", kWirePrefix = "wire ";

struct Text {
  const char* key;
  std::string Profile::* field;
};
struct Flag {
  const char* key;
  bool Profile::* field;
};
struct Number {
  const char* key;
  double Profile::* field;
  bool may_be_zero;
};

constexpr Text kTexts[] = {{"machine", &Profile::machine}, {"date", &Profile::date}};
constexpr Flag kFlags[] = {{"measured", &Profile::measured},
                           {"shared_engines", &Profile::shared_engines}};
constexpr Number kNumbers[] = {
    {"fetch_bytes_per_second", &Profile::fetch_bytes_per_second, false},
    {"drain_bytes_per_second", &Profile::drain_bytes_per_second, false},
    {"both_bytes_per_second", &Profile::both_bytes_per_second, false},
    {"move_bytes_per_second", &Profile::move_bytes_per_second, false},
    {"row_bytes", &Profile::row_bytes, true},
    {"far_row_bytes", &Profile::far_row_bytes, true},
    {"copy_seconds", &Profile::copy_seconds, true},
    {"run_seconds", &Profile::run_seconds, true},
    {"step_seconds", &Profile::step_seconds, true},
    {"hop_seconds", &Profile::hop_seconds, true},
    {"flops_fallback", &Profile::flops_fallback, false},
};
constexpr size_t kKeys = std::size(kTexts) + std::size(kFlags) + std::size(kNumbers);

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

std::string NumberText(double number) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, number);
  return error == std::errc() ? std::string(buffer, end) : std::string("0");
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

Status ReadNumber(const std::string& key, std::string_view value, bool may_be_zero, double* out) {
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, *out);
  const bool usable = error == std::errc() && stop == end && std::isfinite(*out) &&
                      (*out > 0.0 || (may_be_zero && *out == 0.0));
  return usable ? Status() : BadValue(key, value);
}

std::string TileKey(const std::string& key, const TileSize& size) {
  return std::string(kTilePrefix) + std::to_string(size.channels) + " " +
         std::to_string(size.outputs) + " " + Escape(key);
}

Status ReadTile(const std::string& key, std::string_view value, Profile* profile) {
  const char *at = key.data() + kTilePrefix.size(), *end = key.data() + key.size();
  TileSize size{};
  for (int64_t* number : {&size.channels, &size.outputs}) {
    const auto [stop, error] = std::from_chars(at, end, *number);
    if (error != std::errc() || *number < 1 || stop == end || *stop != ' ') {
      return Error(Code::kFileError, "the profile's '%s' names no tile", key.c_str());
    }
    at = stop + 1;
  }
  return ReadNumber(key, value, false, &profile->tiles[Unescape({at, end})][size]);
}

Status ReadEntry(const std::string& key, std::string_view value, Profile* profile) {
  if (key.starts_with(kFlopsPrefix)) {
    double rate = 0.0;
    OOC_TRY(ReadNumber(key, value, false, &rate));
    profile->flops[Unescape(std::string_view(key).substr(kFlopsPrefix.size()))] = rate;
    return {};
  }
  if (key.starts_with(kTilePrefix)) return ReadTile(key, value, profile);
  if (key.starts_with(kWirePrefix)) {
    double rate = 0.0;
    OOC_TRY(ReadNumber(key, value, key.ends_with("row_bytes"), &rate));
    profile->wires[Unescape(std::string_view(key).substr(kWirePrefix.size()))] = rate;
    return {};
  }
  for (const Text& text : kTexts) {
    if (key != text.key) continue;
    profile->*text.field = Unescape(value);
    return {};
  }
  for (const Flag& flag : kFlags) {
    if (key != flag.key) continue;
    if (value != "true" && value != "false") return BadValue(key, value);
    profile->*flag.field = value == "true";
    return {};
  }
  for (const Number& number : kNumbers) {
    if (key == number.key) {
      return ReadNumber(key, value, number.may_be_zero, &(profile->*number.field));
    }
  }
  return Error(Code::kFileError, "the profile has the unknown key '%s'", key.c_str());
}

}  // namespace

std::string Profile::FlopsKey(const std::string& engine, DType dtype, Math math,
                              Direction direction) {
  return engine + "/" + TypeName(dtype, math) + "/" + Name(direction);
}

double Profile::Flops(const std::string& engine, DType dtype, Math math,
                      Direction direction) const {
  std::string keys[2 + kDirections + 2];
  size_t count = 0;
  keys[count++] = FlopsKey(engine, dtype, math, direction);
  for (int i = 0; i < kDirections; ++i) {
    // Bytes limit the bias's gradient, arithmetic the others: neither says much of the other.
    const auto other = static_cast<Direction>(i);
    if (other != Direction::kBackwardBias) keys[count++] = FlopsKey(engine, dtype, math, other);
  }
  keys[count++] = FlopsKey(engine, DType::kFloat32, Math::kFp32, direction);
  keys[count++] = FlopsKey(engine, DType::kFloat32, Math::kFp32, Direction::kForward);
  for (size_t i = 0; i < count; ++i) {
    if (const auto found = flops.find(keys[i]); found != flops.end()) return found->second;
  }
  return flops_fallback;
}

Arithmetic Profile::ArithmeticOf(const std::string& engine, DType dtype, Math math,
                                 Direction direction) const {
  const auto found = tiles.find(FlopsKey(engine, dtype, math, direction));
  if (found != tiles.end()) return Arithmetic(found->second);
  return Arithmetic(Flops(engine, dtype, math, direction));
}

std::string Profile::WireKey(const std::string& engine, bool channels_last, const char* rate) {
  return engine + (channels_last ? "/nhwc/" : "/nchw/") + rate;
}

WireRates Profile::Wire(const std::string& engine, bool channels_last) const {
  const auto rate = [&](const char* name, double general) {
    const auto found = wires.find(WireKey(engine, channels_last, name));
    return found == wires.end() ? general : found->second;
  };
  return {rate("fetch", fetch_bytes_per_second), rate("drain", drain_bytes_per_second),
          rate("both", both_bytes_per_second),   rate("row_bytes", row_bytes),
          rate("far_row_bytes", far_row_bytes),  rate("inside", move_bytes_per_second),
          rate("inside_row_bytes", 0.0),         rate("hop", hop_seconds)};
}

std::string ToText(const Profile& profile) {
  std::string text = std::string(kHeader) + "\n";
  for (const Text& entry : kTexts) PutLine(&text, entry.key, Escape(profile.*entry.field));
  for (const Flag& flag : kFlags) {
    PutLine(&text, flag.key, profile.*flag.field ? "true" : "false");
  }
  for (const Number& number : kNumbers) {
    PutLine(&text, number.key, NumberText(profile.*number.field));
  }
  for (const auto& [key, rate] : profile.flops) {
    PutLine(&text, std::string(kFlopsPrefix) + Escape(key), NumberText(rate));
  }
  for (const auto& [key, rates] : profile.tiles) {
    for (const auto& [size, rate] : rates) {
      PutLine(&text, TileKey(key, size), NumberText(rate));
    }
  }
  for (const auto& [key, rate] : profile.wires) {
    PutLine(&text, std::string(kWirePrefix) + Escape(key), NumberText(rate));
  }
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
  if (next_line() != kHeader) {
    return Error(Code::kFileError,
                 "the profile does not begin with '%s': it is damaged or of "
                 "another version",
                 std::string(kHeader).c_str());
  }
  Profile profile;
  std::set<std::string> keys;
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
    const std::string key(line.substr(0, sign));
    if (!keys.insert(key).second) {
      return Error(Code::kFileError, "the profile has '%s' twice", key.c_str());
    }
    OOC_TRY(ReadEntry(key, line.substr(sign + 3), &profile));
  }
  size_t tables = profile.flops.size() + profile.wires.size();
  for (const auto& [key, rates] : profile.tiles) tables += rates.size();
  if (!complete || keys.size() != kKeys + tables) {
    return Error(Code::kFileError, "the profile is cut off or lacks a key");
  }
  return profile;
}

}  // namespace oocdnn
