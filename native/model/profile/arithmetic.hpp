// Arithmetic: how long an engine convolves, between tiles that were measured.
//
// What counts in a tile is how many channels it has and how many elements its y: few of either
// leave parts of the device idle, in steps that differ from engine to engine.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

namespace oocdnn {

// A tile that was measured: as many input as output channels, in one group; and elements of y.
struct TileSize {
  int64_t channels, outputs;
  auto operator<=>(const TileSize&) const = default;
};
// Operations per second of each, of the time beyond what a run costs anyhow.
using TileRates = std::map<TileSize, double>;

// Of a run of a tile, what is arithmetic: less what every run costs, which is known from another
// tile. Where that would be most of the run, the little that is left says nothing of the
// arithmetic: no more than half is taken off, so that no tile is said to be more than twice as fast
// as it was seen.
constexpr double AloneSeconds(double run, double fixed) {
  constexpr double kLeastShare = 0.5;
  return run - fixed > kLeastShare * run ? run - fixed : kLeastShare * run;
}

// One more tile. Others with its number of channels are what they were between those that were
// measured; `otherwise`: the rate of every tile, where none was.
void AddTile(const TileSize& size, double flops, double otherwise, TileRates* rates);

// The same tiles, each at the rate of the fastest with its number of channels, or fewer; and tiles
// of a single channel at that of the fewest channels known.
TileRates AllAsFast(TileRates rates);

class Arithmetic {
 public:
  explicit Arithmetic(double flops) : Arithmetic({{{1, 1}, flops}}) {}
  explicit Arithmetic(const TileRates& rates);

  // Seconds of one floating-point operation in a tile with this number of channels (the lesser of
  // input and output, in a group) and elements of y. Linear between the measured numbers of
  // elements, in the seconds of the tile, and in 1 / channels, down to a single one; beyond what
  // was measured as the nearest that was.
  [[nodiscard]] double Seconds(int64_t channels, double outputs) const;
  // The least of any tile with this number of channels, or with fewer, as cut ones have.
  [[nodiscard]] double LeastSeconds(int64_t channels) const;
  // Everything takes so many times as long.
  void Scale(double factor);

 private:
  struct Point {
    double outputs, seconds;  // of one operation
  };
  struct Column {
    double channels;
    std::vector<Point> points;  // by outputs
    [[nodiscard]] double Seconds(double outputs) const;
  };
  std::vector<Column> columns_;  // by channels, at least one
};

}  // namespace oocdnn
