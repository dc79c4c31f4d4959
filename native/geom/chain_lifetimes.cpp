// When the tiles that links forward are written, and when they are read for the last time.
#include "geom/chain_lifetimes.hpp"

#include <algorithm>

namespace oocdnn {
namespace {

// When the result of a link is added for the last time; before it is there, where it never is.
int64_t AddedAt(const Program& chain, int64_t source, const std::vector<bool>& shares) {
  int64_t last = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    if (ResidualOf(chain, i) == source) last = shares[i] ? FinishedAt(i) : ConvolvedAt(i);
  }
  return last;
}

}  // namespace

ForwardedLifetimes LifetimesOf(const Program& chain, const std::vector<ForwardedTile>& forwarded,
                               const std::vector<bool>& shares) {
  ForwardedLifetimes lifetimes;
  lifetimes.x.resize(forwarded.size());
  lifetimes.z.resize(forwarded.size());
  for (size_t i = 1; i < forwarded.size(); ++i) {
    const int64_t finished = FinishedAt(i - 1), read = ConvolvedAt(i);
    const int64_t added = AddedAt(chain, static_cast<int64_t>(i) - 1, shares);
    const int64_t written = forwarded[i].convolved ? ConvolvedAt(i - 1) : finished;
    const bool copied = forwarded[i].z > 0;
    lifetimes.x[i] = {forwarded[i].x, copied ? finished : written,
                      copied ? read : std::max(read, added), 0};
    if (copied) lifetimes.z[i] = {forwarded[i].z, written, std::max(finished, added), 0};
  }
  return lifetimes;
}

}  // namespace oocdnn
