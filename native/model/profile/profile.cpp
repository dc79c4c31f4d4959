// The fallbacks of a profile's rates, and their names. The text form is in profile_text.cpp.
#include "model/profile/profile.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/numbers.hpp"
#include "geom/engines.hpp"
#include "model/profile/profile_rates.hpp"

namespace oocdnn {
namespace {

constexpr int kDigits = 5;  // of a rate
constexpr const char *kSumsWord = "+sums", *kFewWord = "+few";

// The nearest number of so many digits.
double Rounded(double value, int digits) {
  char text[40];
  const auto [end, _] =
      std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits);
  std::from_chars(text, end, value);
  return value;
}

Evidence Rounded(const Evidence& known) {
  return {known.samples, known.spread < 0 ? -1.0 : Rounded(known.spread, 2)};
}

}  // namespace

// Of a number that is none: the least.
double PossibleRate(double rate) {
  constexpr double kLeast = 1e6, kMost = 1e16;
  return std::fmin(std::fmax(rate, kLeast), kMost);
}

std::string FlopsName(const std::string& key) { return kFlopsWord + key; }

std::string TileName(const std::string& key, const TileSize& size) {
  return kTileWord + NumberText(size.channels) + " " + NumberText(size.outputs) + " " + key;
}

std::string WireName(const std::string& key) { return kWireWord + key; }

std::string OnceName(const std::string& key) { return kOnceWord + key; }

std::string NameOf(double Profile::* plain) {
  return std::find_if(std::begin(kPlainRates), std::end(kPlainRates),
                      [&](const PlainRate& rate) { return rate.field == plain; })
      ->name;
}

void Profile::Add(const Profile& other) {
  flops.insert(other.flops.begin(), other.flops.end());
  wires.insert(other.wires.begin(), other.wires.end());
  once.insert(other.once.begin(), other.once.end());
  for (const auto& [key, rates] : other.tiles) tiles[key].insert(rates.begin(), rates.end());
  evidence.insert(other.evidence.begin(), other.evidence.end());
}

bool HasFewInputs(const ConvShape& shape) {
  constexpr int64_t kFew = 16;
  return shape.g == 1 && shape.c < kFew && shape.k >= kFew;
}

bool Profile::Measured() const {
  return evidence.contains(NameOf(&Profile::fetch_bytes_per_second)) &&
         evidence.contains(NameOf(&Profile::run_seconds));
}

void Profile::Set(double Profile::* plain, double rate, const Evidence& known) {
  this->*plain = Rounded(rate, kDigits);
  evidence[NameOf(plain)] = Rounded(known);
}

void Profile::SetFlops(const std::string& key, double rate, const Evidence& known) {
  flops[key] = Rounded(rate, kDigits);
  evidence[FlopsName(key)] = Rounded(known);
}

void Profile::SetTile(const std::string& key, const TileSize& size, double rate,
                      const Evidence& known) {
  tiles[key][size] = Rounded(rate, kDigits);
  evidence[TileName(key, size)] = Rounded(known);
}

void Profile::SetWire(const std::string& key, double rate, const Evidence& known) {
  wires[key] = Rounded(rate, kDigits);
  evidence[WireName(key)] = Rounded(known);
}

void Profile::SetOnce(const std::string& key, double rate, const Evidence& known) {
  once[key] = Rounded(rate, kDigits);
  evidence[OnceName(key)] = Rounded(known);
}

std::string Profile::FlopsKey(const std::string& engine, DType dtype, Math math,
                              Direction direction, bool sums) {
  const bool sums_differ = AccumulatorOf(dtype) != dtype;
  return engine + "/" + TypeName(dtype, MathOf(engine, math)) +
         (sums && sums_differ ? kSumsWord : "") + "/" + Name(direction);
}

double Profile::Flops(const std::string& engine, DType dtype, Math math, Direction direction,
                      bool sums) const {
  std::string keys[3 + kDirections + 2];
  size_t count = 0;
  if (sums) keys[count++] = FlopsKey(engine, dtype, math, direction, true);
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

std::string Profile::FewKey(const std::string& key) {
  std::string few = key;
  return few.insert(few.rfind('/'), kFewWord);
}

std::string Profile::TilesKey(const std::string& engine, const Problem& problem,
                              Direction direction, bool sums) const {
  const auto key = [&](bool of_sums) {
    return FlopsKey(engine, problem.dtype, problem.math, direction, of_sums);
  };
  const std::string own = FewKey(key(sums));
  const bool known = tiles.contains(own) || tiles.contains(FewKey(key(false)));
  return HasFewInputs(problem.shape) && known ? own : key(sums);
}

Arithmetic Profile::ArithmeticOf(const std::string& engine, const Problem& problem,
                                 Direction direction, bool sums) const {
  const std::string key = TilesKey(engine, problem, direction, sums);
  if (const auto found = tiles.find(key); found != tiles.end()) return Arithmetic(found->second);
  if (const auto found = flops.find(key); found != flops.end()) return Arithmetic(found->second);
  return sums ? ArithmeticOf(engine, problem, direction, false)
              : Arithmetic(Flops(engine, problem.dtype, problem.math, direction));
}

TileRates& Profile::OwnTiles(const std::string& key) {
  const size_t word = key.find(kSumsWord);
  if (word != std::string::npos && !tiles.contains(key) && !flops.contains(key)) {
    std::string without = key;
    without.erase(word, std::string(kSumsWord).size());
    if (const auto found = tiles.find(without); found != tiles.end()) tiles[key] = found->second;
  }
  return tiles[key];
}

std::optional<double> Profile::Once(const std::string& key) const {
  const auto found = once.find(key);
  return found == once.end() ? std::nullopt : std::optional(found->second);
}

std::string Profile::PrepareKey(const std::string& engine, DType dtype, Math math,
                                Direction direction) {
  return FlopsKey(engine, dtype, math, direction) + "/prepare";
}

std::string Profile::PinKey() { return std::string(kPagePlace) + "/pin"; }

std::string Profile::StagingKey(const char* place, const char* rate) {
  return std::string(place) + "/" + rate;
}

StagingRates Profile::StagingOf(const char* place) const {
  const auto rate = [&](const char* name) {
    const auto found = wires.find(StagingKey(place, name));
    return found == wires.end() ? std::numeric_limits<double>::infinity() : found->second;
  };
  return {rate("fetch"), rate("drain"), rate("both")};
}

std::string Profile::BesideKey(int others, const char* rate) {
  return std::string(kBeside) + "/" + NumberText(others) + "/" + rate;
}

double Profile::Alone(const std::string& rate) const {
  return rate == "fetch"   ? fetch_bytes_per_second
         : rate == "drain" ? drain_bytes_per_second
                           : both_bytes_per_second;
}

double Profile::ShareBeside(const char* rate) const {
  for (int others = busy_gpus; others > 0; --others) {
    const auto found = wires.find(BesideKey(others, rate));
    if (found != wires.end()) return std::min(found->second / Alone(rate), 1.0);
  }
  return 1.0;
}

std::string Profile::WireKey(const std::string& engine, bool channels_last, const char* rate) {
  return engine + (channels_last ? "/nhwc/" : "/nchw/") + rate;
}

WireRates Profile::Wire(const std::string& engine, bool channels_last) const {
  const auto rate = [&](const char* name, double general) {
    const auto found = wires.find(WireKey(engine, channels_last, name));
    return found == wires.end() ? general : found->second;
  };
  const auto left = [&](const char* name) { return rate(name, Alone(name)) * ShareBeside(name); };
  return {
      .fetch = left("fetch"),
      .drain = left("drain"),
      .both = left("both"),
      .fetch_rows = {rate("fetch_row_bytes", fetch_row_bytes),
                     rate("far_fetch_row_bytes", far_fetch_row_bytes)},
      .drain_rows = {rate("drain_row_bytes", drain_row_bytes),
                     rate("far_drain_row_bytes", far_drain_row_bytes)},
      .inside = rate("inside", move_bytes_per_second),
      .inside_row_bytes = rate("inside_row_bytes", 0.0),
      .hop = rate("hop", hop_seconds),
      .finish = rate("finish", move_bytes_per_second),
      .pool = rate("pool", move_bytes_per_second),
      .restore = rate("restore", move_bytes_per_second),
      .normalize = rate("normalize", move_bytes_per_second),
  };
}

}  // namespace oocdnn
