// Profile: the constants of one machine and device that every price divides by, and how each of
// them is known.
//
// Measured by the library in the first call (under two seconds) and kept as text. Of another
// machine or version, in the user's cache directory, it is a file of another name; one there that
// is damaged is replaced with a warning. A file that somebody gave is used whoever it is of, with a
// warning where that is another machine; one that cannot be read is left as it is, with a warning,
// and what is measured then is not kept.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "geom/problem.hpp"
#include "model/profile/arithmetic.hpp"

namespace oocdnn {

// Bytes that each contiguous row of a transfer costs on top of its own.
struct RowBytes {
  double near, far;  // `far`: of a row that begins far from the one before (see RowCount)
};

// What crosses between the caller's memory and tiles.
struct WireRates {
  double fetch, drain, both;  // bytes per second; `both`: the two directions together
  RowBytes fetch_rows, drain_rows;
  // The same between tiles and the device's own memory, where no row is far.
  double inside, inside_row_bytes;
  double hop;  // seconds, see Profile::hop_seconds
  // Bytes per second, read and written, of passes over tiles: that finish a sum, with a pool or
  // without, that restore dy, that normalise what was fetched.
  double finish, pool, restore, normalize;
};

// What staging by the host's threads does at most, in bytes per second; infinite where unknown.
struct StagingRates {
  double fetch, drain, both;
};

// The nearest number of bytes or operations per second that a profile may hold, which is what any
// machine may have: what is left of a time may be nothing, and the end of a division by it
// infinite.
double PossibleRate(double rate);

// How a rate is known that was measured.
struct Evidence {
  int64_t samples = 0;  // runs that were timed; 0: nobody has noted how many
  double spread =
      -1.0;  // by what share of the fastest the middle one took longer; below 0: unknown

  bool operator==(const Evidence&) const = default;
};

// Who was measured. Rates of one say nothing certain of another.
struct Provenance {
  std::string machine;  // see Capabilities::description
  std::string driver;   // see Capabilities::driver
  std::string engines;  // with the libraries that they are from: "onednn (oneDNN 2.7.3), direct"

  bool operator==(const Provenance&) const = default;
};

// Whether all was measured by who had the machine to itself, or by first calls beside whatever else
// ran.
enum class Calibration : uint8_t { kNone, kBegun, kComplete };

// What is staged: pageable memory, files.
constexpr const char *kPagePlace = "page", *kFilePlace = "file";

// What the wires are beside other GPUs: the first word of keys, and the rates.
constexpr const char* kBeside = "beside";
constexpr const char* kBesideRates[] = {"fetch", "drain", "both"};

// Few channels in and more out, as the first layer of a network has them: what goes out fills an
// engine's blocks, so that tiles with few on both sides say little of its rate.
bool HasFewInputs(const ConvShape& shape);

struct Profile {
  Provenance of;
  std::string date;             // of the first measurement, ISO 8601, UTC
  bool shared_engines = false;  // copies and compute take turns: times add up, nothing overlaps
  Calibration calibration = Calibration::kNone;
  double fetch_bytes_per_second = 8e9, drain_bytes_per_second = 8e9;
  double both_bytes_per_second = 12e9;                    // the two directions together
  double move_bytes_per_second = 20e9;                    // inside the device: rolled rows
  double fetch_row_bytes = 64, far_fetch_row_bytes = 64;  // see RowBytes
  double drain_row_bytes = 64, far_drain_row_bytes = 64;
  double copy_seconds = 20e-6;  // of one copy beyond its bytes
  double run_seconds = 30e-6;   // fixed cost of one tile's convolution
  double step_seconds = 10e-6;  // of the host, to enqueue one tile, beside what goes on
  double hop_seconds = 10e-6;   // until what waits for the end of other work begins
  // Floating-point operations per second by "engine/type/direction" ("onednn/f32/fwd",
  // "cudnn/f32/tf32/fwd"), for large tiles; of a 16-bit type "bf16+sums" where tiles of the output
  // have the accumulator's type, which is as "bf16" where it has no rate. Another missing key falls
  // back to its nearest relative, then to `flops_fallback`. Where `tiles` has the key, the rate
  // depends on the tile; of problems with few inputs it is under FewKey, where that is there.
  std::map<std::string, double> flops;
  std::map<std::string, TileRates> tiles;
  double flops_fallback = 5e9;
  // By "engine/order/rate": what differs from the rates above because an engine has its tiles in
  // another memory order than the caller's; order nchw or nhwc, rate as in WireRates
  // ("cudnn-nhwc/nchw/fetch"). And "page/rate" or "file/rate": of staging, see StagingRates. And
  // "beside/N/rate": fetch, drain and both of the rates above while N other GPUs of the host copy
  // in both directions too.
  std::map<std::string, double> wires;
  // What goes before calls, of which prices know what they pin: by "engine/type/direction/prepare"
  // the seconds that a tile's shape takes to be prepared when it is new; by "page/pin" bytes per
  // second of pageable memory that is pinned and let go. Any may be missing.
  std::map<std::string, double> once;
  // By the rate's name (model/profile/profile_rates.hpp). A rate that is not here is an assumption.
  std::map<std::string, Evidence> evidence;
  // How many other GPUs of the host are busy: what Wire gives is beside them. Of who asks and not
  // of the machine, so that it is not in the text.
  int busy_gpus = 0;

  bool operator==(const Profile&) const = default;
  // Whether transfers and runs were measured, so that arithmetic can be told from what runs cost.
  [[nodiscard]] bool Measured() const;
  [[nodiscard]] bool Calibrated() const { return calibration != Calibration::kNone; }
  // A rate that was measured, and how it is known; five digits of it are kept.
  void Set(double Profile::* plain, double rate, const Evidence& known);
  void SetFlops(const std::string& key, double rate, const Evidence& known);
  void SetTile(const std::string& key, const TileSize& size, double rate, const Evidence& known);
  void SetWire(const std::string& key, double rate, const Evidence& known);
  void SetOnce(const std::string& key, double rate, const Evidence& known);
  // What the other has measured of the same machine and this has not, of all but plain rates.
  void Add(const Profile& other);
  // Those of the key, copied from what they fall back to where there are none.
  [[nodiscard]] TileRates& OwnTiles(const std::string& key);
  // The rate of the key; else without sums; else of the engine and type in another direction
  // (forward first); else of the engine in plain f32 (this direction first, then forward); else
  // flops_fallback.
  [[nodiscard]] double Flops(const std::string& engine, DType dtype, Math math, Direction direction,
                             bool sums = false) const;
  // `sums`: see flops; the same key where the type is its own accumulator's.
  static std::string FlopsKey(const std::string& engine, DType dtype, Math math,
                              Direction direction, bool sums = false);
  // That of problems with few inputs: "cudnn/f32+few/fwd", "cudnn/bf16+sums+few/fwd".
  static std::string FewKey(const std::string& key);
  // That under which the problem's own tiles belong, in one of its directions: FewKey where it has
  // few inputs and any such tile is known.
  [[nodiscard]] std::string TilesKey(const std::string& engine, const Problem& problem,
                                     Direction direction, bool sums) const;
  [[nodiscard]] Arithmetic ArithmeticOf(const std::string& engine, const Problem& problem,
                                        Direction direction, bool sums) const;
  // For an engine and the caller's memory order; what is not among `wires` is as everywhere. Of
  // each wire to the host as much is left beside other GPUs as of the rates above.
  [[nodiscard]] WireRates Wire(const std::string& engine, bool channels_last) const;
  // The rate above that is "fetch", "drain" or "both".
  [[nodiscard]] double Alone(const std::string& rate) const;
  // What is left of "fetch", "drain" or "both" beside `busy_gpus` others, or where nobody has
  // measured that beside the nearest fewer; at most 1, and 1 where no fewer were measured either.
  [[nodiscard]] double ShareBeside(const char* rate) const;
  [[nodiscard]] StagingRates StagingOf(const char* place) const;  // kPagePlace or kFilePlace
  [[nodiscard]] std::optional<double> Once(const std::string& key) const;
  static std::string PrepareKey(const std::string& engine, DType dtype, Math math,
                                Direction direction);
  static std::string PinKey();
  static std::string StagingKey(const char* place, const char* rate);
  static std::string BesideKey(int others, const char* rate);
  static std::string WireKey(const std::string& engine, bool channels_last, const char* rate);
};

constexpr std::string_view kProfileVersion = "9";  // of the text

// Bounds of the rates, seconds and bytes in it, so that no price made of them overflows; seconds
// and bytes of a row may be less, down to 0.
constexpr double kLeastInProfile = 1e-36, kMostInProfile = 1e36;

// Lines of `key = value` between a versioned header and an end mark; a rate is followed by
// "unmeasured", "measured", or "samples N spread S" (S may be "unknown"). ParseProfile(ToText(p))
// == p where no other GPUs are busy; a text that is of another version, is cut off, lacks or
// repeats a key or holds a number that no machine has is refused.
std::string ToText(const Profile& profile);
Result<Profile> ParseProfile(const std::string& text);

}  // namespace oocdnn
