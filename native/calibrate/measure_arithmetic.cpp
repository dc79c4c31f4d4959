// Convolutions whose sums are long enough for an engine's full rate at their number of channels.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/measure.hpp"
#include "calibrate/rig.hpp"
#include "geom/engines.hpp"
#include "memory/owners.hpp"
#include "model/profile/profile_rates.hpp"
#include "planner/stopwatch.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kWidth = 112;
// Channels: of what is measured first, and of the rest.
constexpr int64_t kUsual = 64, kMany = 512, kMost = 2048;
// Rows of an image with few channels: of a small tile, which suffices where a device takes long
// enough for it, of a large one, and of the largest that calibration measures: 200 to 400 MB, where
// cuDNN is up to a tenth faster still than at a quarter of that.
constexpr int64_t kRows = 56, kGrowth = 8, kMostRows = kRows * kGrowth * kGrowth;
constexpr int64_t kGrowthOfAll = 4, kMostRowsOfAll = kMostRows * kGrowthOfAll;
constexpr double kLongEnough = 1e-3;  // seconds of a run
// Seconds of a run that somebody waits for and of any other, and of a few runs.
constexpr double kTooLong = 10e-3, kTooLongEver = 40e-3, kEnough = 10e-3;
constexpr double kFast = 1e13;  // operations per second from which on the tile's size matters

// Those of a tile, in and out. With few inputs (HasFewInputs): of images, and of what has some
// more.
struct Channels {
  int64_t c, k;
};
constexpr Channels kOfImages{3, kUsual}, kOfFew{8, kUsual};
constexpr int64_t kMostOfImages = 5;

struct TimedTile {
  TileSize size{};
  double operations = 0.0;
  Timing timing;
};

// Operations per second and how that is known; 0 where nothing was timed.
struct FoundRate {
  double rate = 0.0;
  Evidence known;
};

// Tiles of one type in one direction; what is found goes to the profile.
class Tiles {
 public:
  Tiles(Device& device, const Problem& asked, bool sums, bool all, int64_t limit, Stream stream,
        Profile* profile)
      : device_(device),
        asked_(asked),
        timed_(sums ? Timed::kSums : Timed::kArithmetic),
        growth_(all ? kGrowthOfAll : kGrowth),
        least_rows_(all ? kRows / kGrowthOfAll : kRows),
        most_rows_(all ? kMostRowsOfAll : kMostRows),
        too_long_(all ? kTooLongEver : kTooLong),
        limit_(limit),
        stream_(stream),
        profile_(*profile) {}

  // Of a tile that runs long enough; 0 where the engine refuses.
  FoundRate Rate(int engine) {
    FoundRate found;
    for (int64_t rows = kRows; rows <= kMostRows; rows *= kGrowth) {
      const auto tile = Time(engine, {kUsual, kUsual}, rows);
      if (!tile || !tile->timing.ok()) return found;
      found = {RateOf(tile->operations, tile->timing), tile->timing.evidence()};
      if (tile->timing.seconds >= kLongEnough) return found;
    }
    return found;
  }

  // Measures the rates of tiles with these channels that are missing under the key, from small to
  // large until the next would take too long. Returns the rate of the largest tile.
  FoundRate Rates(int engine, const std::string& key, const Channels& channels) {
    FoundRate largest;
    for (int64_t rows = least_rows_; rows <= most_rows_; rows *= growth_) {
      const int64_t its_rows = std::max<int64_t>(rows * kUsual / channels.k, 1);
      const auto known = Known(key, SizeOf(channels, its_rows));
      const FoundRate found = known ? *known : Measure(engine, key, channels, its_rows);
      if (found.rate == 0.0) break;
      seen_[key].insert(SizeOf(channels, its_rows));
      largest = found;
      const double operations =
          SampleFor(engine, channels, its_rows).shape.Operations(asked_.direction);
      if (static_cast<double>(growth_) * operations / found.rate > too_long_) break;
    }
    return largest;
  }

  // Tiles that were guessed beside refined ones (AddTile) rest on what was known then: guessed anew
  // on what is measured now. `otherwise`: the rate of every tile where none was measured.
  void GuessAnew(const std::string& key, double otherwise) {
    const auto rates = profile_.tiles.find(key);
    if (rates == profile_.tiles.end()) return;
    TileRates known, refined;
    for (const auto& [size, rate] : rates->second) {
      if (seen_[key].contains(size)) {
        known[size] = rate;
      } else if (profile_.evidence.contains(TileName(key, size))) {
        refined[size] = rate;
      }
    }
    for (const auto& [size, rate] : refined) AddTile(size, rate, otherwise, &known);
    rates->second = std::move(known);
    if (rates->second.empty()) profile_.tiles.erase(rates);
  }

  // The first that was neither a refusal nor for want of a higher limit.
  [[nodiscard]] const Status& failure() const { return failure_; }

  // Of the tiles that were prepared, the middle one's time: shapes differ, and the first may have
  // had a library load its code. `anyhow`: of a few where none was, because the profile is older
  // than this and has their rates.
  void NotePreparing(int engine, bool anyhow) {
    const std::string& name = device_.engines()[static_cast<size_t>(engine)].name;
    const std::string key = Profile::PrepareKey(name, asked_.dtype, asked_.math, asked_.direction);
    const auto known = profile_.evidence.find(OnceName(key));
    const bool unknown = known == profile_.evidence.end();
    if (anyhow && unknown && preparing_.empty()) Rate(engine);
    const Timing middle = MiddleOf(std::exchange(preparing_, {}));
    const bool better = unknown || known->second.samples < middle.samples;
    if (middle.ok() && middle.seconds > 0.0 && better) {
      profile_.SetOnce(key, middle.seconds, middle.evidence());
    }
  }

 private:
  // What the profile has of that tile already.
  [[nodiscard]] std::optional<FoundRate> Known(const std::string& key, const TileSize& size) const {
    const auto rates = profile_.tiles.find(key);
    if (rates == profile_.tiles.end()) return std::nullopt;
    const auto found = rates->second.find(size);
    const auto known = profile_.evidence.find(TileName(key, size));
    if (found == rates->second.end() || known == profile_.evidence.end()) return std::nullopt;
    return FoundRate{found->second, known->second};
  }

  // Its arithmetic, without what a run costs anyhow.
  FoundRate Measure(int engine, const std::string& key, const Channels& channels, int64_t rows) {
    const auto tile = Time(engine, channels, rows);
    if (!tile || !tile->timing.ok()) return {};
    Timing alone = tile->timing;
    alone.seconds = AloneSeconds(alone.seconds, profile_.run_seconds);
    const double rate = RateOf(tile->operations, alone);
    if (rate > 0.0) profile_.SetTile(key, tile->size, rate, alone.evidence());
    return {rate, alone.evidence()};
  }

  [[nodiscard]] static TileSize SizeOf(const Channels& channels, int64_t rows) {
    return {std::min(channels.c, channels.k), channels.k * rows * kWidth};
  }

  // Depthwise engines are timed with a larger filter, so that arithmetic takes longer than the
  // memory traffic, which prices count by themselves; and engines that take no short sums, so that
  // those of few channels are long enough.
  [[nodiscard]] Problem SampleFor(int engine, const Channels& channels, int64_t rows) const {
    const EngineInfo& info = device_.engines()[static_cast<size_t>(engine)];
    ConvShape shape;
    shape.c = channels.c;
    shape.k = channels.k;
    shape.in = shape.out = {1, rows, kWidth};
    return SampleOf(ShapeFor(info, shape), asked_.dtype, asked_.math, asked_.direction,
                    info.depthwise ? 7
                    : info.splits  ? 5
                                   : 3);
  }

  // Nothing where the engine refuses or wants more than the limit, or where it fails.
  std::optional<TimedTile> Time(int engine, const Channels& channels, int64_t rows) {
    auto rig = Rig::Make(device_, engine, SampleFor(engine, channels, rows), limit_, timed_);
    if (!rig.ok()) {
      NoteFailure(std::move(rig).status());
      return std::nullopt;
    }
    preparing_.push_back(rig.value()->prepare_seconds());
    Status ran;
    const auto run = [&](Span* span) { return rig.value()->Run(stream_, span); };
    const TimedTile tile{SizeOf(channels, rows), rig.value()->operations(),
                         BestOf(device_, stream_, run, kEnough, &ran)};
    NoteFailure(std::move(ran));
    return tile;
  }

  // A device that is short of memory says no more than that; who says how much it would take wants
  // more than the limit.
  void NoteFailure(Status status) {
    if (status.ok()) return;
    const bool too_much = status.code() == Code::kOutOfMemory && status.detail() > 0;
    if (status.code() == Code::kUnsupported || too_much || !failure_.ok()) return;
    failure_ = std::move(status);
  }

  Device& device_;
  const Problem& asked_;
  const Timed timed_;
  // Of the tiles, see Rates.
  const int64_t growth_, least_rows_, most_rows_;
  const double too_long_;
  const int64_t limit_;
  Stream stream_;
  Profile& profile_;
  std::vector<double> preparing_;                   // seconds, of each tile
  std::map<std::string, std::set<TileSize>> seen_;  // by key, what Rates has found or measured
  Status failure_;
};

// The channels of further tiles, as many in as out.
std::vector<int64_t> ChannelsOf(const Problem& problem, TileGrid grid) {
  if (grid == TileGrid::kAll) return {16, 128, kMany, kMost};
  return IsWide(problem) ? std::vector{kMany, kMost} : std::vector{kMany};
}

// Those of tiles with few inputs.
std::vector<Channels> FewOf(const Problem& problem, TileGrid grid) {
  if (grid == TileGrid::kAll) return {kOfImages, kOfFew};
  if (!HasFewInputs(problem.shape)) return {};
  return {problem.shape.c <= kMostOfImages ? kOfImages : kOfFew};
}

bool HasChannels(const Profile& profile, const std::string& key, int64_t channels) {
  const auto rates = profile.tiles.find(key);
  if (rates == profile.tiles.end()) return false;
  return std::any_of(rates->second.begin(), rates->second.end(), [&](const auto& entry) {
    return entry.first.channels == channels &&
           profile.evidence.contains(TileName(key, entry.first));
  });
}

// Where copies and arithmetic overlap, the sizes of tiles matter too: what is fast there is so only
// when it has much to do.
bool SizesMatter(const Device& device, const EngineInfo& engine, const Problem& problem) {
  return !device.capabilities().shared_engines && !engine.depthwise &&
         problem.direction != Direction::kBackwardBias;
}

// Whether tiles of the output in the problem's type are measured, in the accumulator's, or both. In
// a first call, sums only where plans of the problem come to have them: what is finished always is
// one, and gradients of filters nearly always are.
std::vector<bool> SumsOf(const Problem& problem, TileGrid grid) {
  const bool all = grid == TileGrid::kAll;
  const bool differ = AccumulatorOf(problem.dtype) != problem.dtype &&
                      problem.direction != Direction::kBackwardBias;
  const bool finished = differ && problem.NeedsFinish();
  const bool summed = problem.direction == Direction::kBackwardFilter;
  std::vector<bool> sums;
  if (all || !finished) sums.push_back(false);
  if (differ && (all || finished || summed)) sums.push_back(true);
  return sums;
}

std::string KeyOf(const EngineInfo& engine, const Problem& problem, bool sums) {
  return Profile::FlopsKey(engine.name, problem.dtype, problem.math, problem.direction, sums);
}

// Whether the key has what a first call of the problem measures.
bool HasRates(const Profile& profile, const std::string& key, const Problem& problem, bool sizes) {
  const auto known = profile.flops.find(key);
  const bool lacks_wide = sizes && IsWide(problem) && !HasChannels(profile, key, kMost);
  const std::vector<Channels> few = FewOf(problem, TileGrid::kFew);
  const bool lacks_few = sizes && std::any_of(few.begin(), few.end(), [&](const Channels& one) {
                           return !HasChannels(profile, Profile::FewKey(key), one.c);
                         });
  return known != profile.flops.end() && (!(lacks_wide || lacks_few) || known->second <= kFast);
}

// True if the engine computes the samples that are measured for problems of this kind, see
// SampleFor.
bool ServesSamples(const EngineInfo& engine, const Problem& problem) {
  ConvShape shape;
  shape.c = shape.k = kUsual;
  shape.in = shape.out = {1, kWidth, kWidth};
  return engine.depthwise || Serves(engine, problem.direction, problem.dtype, problem.math, shape);
}

// Of every engine; `sums`: of tiles of the output in the accumulator's type.
Status MeasureKind(Device& device, const Problem& problem, bool sums, TileGrid grid, int64_t limit,
                   Stream stream, Profile* profile) {
  const bool guesses = grid == TileGrid::kAll && profile->calibration == Calibration::kBegun;
  Status failure;
  for (int engine = 0; engine < static_cast<int>(device.engines().size()); ++engine) {
    const EngineInfo& info = device.engines()[static_cast<size_t>(engine)];
    const bool serves =
        grid == TileGrid::kAll ? ServesSamples(info, problem) : Serves(info, problem);
    if (IsLastResort(info) || !serves) continue;
    const bool sizes = SizesMatter(device, info, problem);
    const bool all = grid == TileGrid::kAll && sizes;
    const std::string key = KeyOf(info, problem, sums);
    Tiles tiles(device, problem, sums, all, limit, stream, profile);
    if (all || !HasRates(*profile, key, problem, sizes)) {
      const FoundRate found =
          sizes ? tiles.Rates(engine, key, {kUsual, kUsual}) : tiles.Rate(engine);
      if (sizes && found.rate > kFast) {
        for (const int64_t channels : ChannelsOf(problem, grid)) {
          tiles.Rates(engine, key, {channels, channels});
        }
        for (const Channels& channels : FewOf(problem, grid)) {
          tiles.Rates(engine, Profile::FewKey(key), channels);
        }
      }
      if (found.rate > 0 && tiles.failure().ok()) {
        profile->SetFlops(key, found.rate, found.known);
      }
    }
    if (const auto flops = profile->flops.find(key); guesses && flops != profile->flops.end()) {
      for (const std::string& each : {key, Profile::FewKey(key)}) {
        tiles.GuessAnew(each, flops->second);
      }
    }
    tiles.NotePreparing(engine, grid == TileGrid::kAll);
    if (failure.ok()) failure = Status(tiles.failure()).With(key);
  }
  return failure;
}

}  // namespace

bool IsWide(const Problem& problem) {
  return std::min(problem.shape.k, problem.shape.c) >= 2 * kMany;
}

bool LacksArithmetic(const Device& device, const Problem& problem, const Profile& profile) {
  for (const EngineInfo& engine : device.engines()) {
    if (IsLastResort(engine) || !Serves(engine, problem)) continue;
    const bool sizes = SizesMatter(device, engine, problem);
    for (const bool sums : SumsOf(problem, TileGrid::kFew)) {
      if (!HasRates(profile, KeyOf(engine, problem, sums), problem, sizes)) return true;
    }
  }
  return false;
}

Status MeasureArithmetic(Device& device, const Problem& problem, TileGrid grid, int64_t limit,
                         Profile* profile) {
  OOC_ASSIGN(const OwnedStream stream, MakeStream(device, "compute"));
  Status failure;
  for (const bool sums : SumsOf(problem, grid)) {
    Status status = MeasureKind(device, problem, sums, grid, limit, stream.get(), profile);
    if (failure.ok()) failure = std::move(status);
  }
  return failure;
}

}  // namespace oocdnn
