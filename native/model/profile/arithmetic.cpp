#include "model/profile/arithmetic.hpp"

#include <algorithm>
#include <limits>

namespace oocdnn {
namespace {

// The first of a sorted range that is not below `value`, by a member.
template <class Range, class Member>
auto From(const Range& range, double value, Member member) {
  return std::find_if(range.begin(), range.end(),
                      [&](const auto& entry) { return entry.*member >= value; });
}

}  // namespace

void AddTile(const TileSize& size, double flops, double otherwise, TileRates* rates) {
  constexpr int64_t kFar = 8;
  if (rates->empty()) {
    for (const int64_t outputs : {size.outputs / kFar, size.outputs * kFar}) {
      if (outputs > 0) (*rates)[{size.channels, outputs}] = otherwise;
    }
  }
  const Arithmetic before(*rates);
  const bool known = std::any_of(rates->begin(), rates->end(), [&](const auto& entry) {
    return entry.first.channels == size.channels;
  });
  if (!known) {
    const TileRates measured = *rates;
    for (const auto& [other, _] : measured) {
      const auto outputs = static_cast<double>(other.outputs);
      (*rates)[{size.channels, other.outputs}] = 1 / before.Seconds(size.channels, outputs);
    }
  }
  (*rates)[size] = flops;
}

TileRates AllAsFast(TileRates rates) {
  std::map<int64_t, double> fastest;
  for (const auto& [size, flops] : rates) {
    double& most = fastest[size.channels];
    most = std::max(most, flops);
  }
  double most = 0.0;
  for (auto& [channels, flops] : fastest) flops = most = std::max(most, flops);
  for (auto& [size, flops] : rates) flops = fastest[size.channels];
  // The line towards fewer channels than any that were measured makes much of little noise.
  const TileRates known = rates;
  for (const auto& [size, flops] : known) {
    if (size.channels == known.begin()->first.channels) rates[{1, size.outputs}] = flops;
  }
  return rates;
}

Arithmetic::Arithmetic(const TileRates& rates) {
  for (const auto& [size, flops] : rates) {
    const auto channels = static_cast<double>(size.channels);
    if (columns_.empty() || columns_.back().channels != channels)
      columns_.push_back({channels, {}});
    columns_.back().points.push_back({static_cast<double>(size.outputs), 1 / flops});
  }
}

double Arithmetic::Column::Seconds(double outputs) const {
  const auto next = From(points, outputs, &Point::outputs);
  if (next == points.begin()) return next->seconds;
  const Point& below = *(next - 1);
  if (next == points.end()) return below.seconds;
  const double share = (outputs - below.outputs) / (next->outputs - below.outputs);
  const double first = below.seconds * below.outputs, second = next->seconds * next->outputs;
  return (first + share * (second - first)) / outputs;
}

// With fewer channels than in the first column the line through the first two goes on; they are not
// faster than there.
double Arithmetic::Seconds(int64_t channels, double outputs) const {
  const auto wanted = static_cast<double>(channels);
  auto next = From(columns_, wanted, &Column::channels);
  if (next == columns_.end()) return columns_.back().Seconds(outputs);
  const double least = next->Seconds(outputs);
  const bool fewer = next == columns_.begin();
  if (fewer && (columns_.size() == 1 || next->channels == wanted)) return least;
  if (fewer) ++next;
  const Column& below = *(next - 1);
  const double share =
      (1 / below.channels - 1 / wanted) / (1 / below.channels - 1 / next->channels);
  const double first = below.Seconds(outputs);
  const double seconds = first + share * (next->Seconds(outputs) - first);
  return fewer ? std::max(seconds, least) : seconds;
}

// Between two points the seconds of an operation lie between theirs.
double Arithmetic::LeastSeconds(int64_t channels) const {
  double least = std::numeric_limits<double>::infinity();
  for (const Column& column : columns_) {
    const bool fewer = column.channels < static_cast<double>(channels);
    for (const Point& point : column.points) {
      least = std::min(least, Seconds(channels, point.outputs));
      if (fewer) least = std::min(least, point.seconds);
    }
  }
  return least;
}

void Arithmetic::Scale(double factor) {
  for (Column& column : columns_) {
    for (Point& point : column.points) point.seconds *= factor;
  }
}

}  // namespace oocdnn
