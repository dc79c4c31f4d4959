// Moments: each link takes the residual and convolves in one, finishes and hands on in the next.
#include "geom/chain_lifetimes.hpp"

#include <algorithm>

namespace oocdnn {
namespace {

int64_t ConvolvedAt(int64_t link) { return 2 * link; }
int64_t FinishedAt(int64_t link) { return 2 * link + 1; }

// When the result of a link is added for the last time; before it is there, where it never is.
int64_t AddedAt(const Program& chain, int64_t source, const std::vector<bool>& shares) {
  int64_t last = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    const auto link = static_cast<int64_t>(i);
    if (ResidualOf(chain, i) == source) last = shares[i] ? FinishedAt(link) : ConvolvedAt(link);
  }
  return last;
}

}  // namespace

ForwardedRegions PackForwarded(const Program& chain, const std::vector<ForwardedTile>& forwarded,
                               const std::vector<bool>& shares, int64_t alignment) {
  ForwardedRegions regions;
  regions.x.resize(forwarded.size());
  regions.z.resize(forwarded.size());
  for (size_t i = 1; i < forwarded.size(); ++i) {
    const auto link = static_cast<int64_t>(i);
    const int64_t handed_on = FinishedAt(link - 1), added = AddedAt(chain, link - 1, shares);
    const int64_t made = forwarded[i].convolved ? ConvolvedAt(link - 1) : handed_on;
    const bool copied = forwarded[i].z > 0;
    const int64_t read = ConvolvedAt(link);
    regions.x[i] = {forwarded[i].x, copied ? handed_on : made,
                    copied ? read : std::max(read, added), 0};
    if (copied) regions.z[i] = {forwarded[i].z, made, std::max(handed_on, added), 0};
  }
  regions.x_bytes = Pack(&regions.x, alignment);
  regions.z_bytes = Pack(&regions.z, alignment);
  return regions;
}

}  // namespace oocdnn
