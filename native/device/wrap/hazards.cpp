// Regions, their overlap, and the list of accesses that may still conflict with something.
#include "device/wrap/hazards.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

std::string Describe(const Access& access, const std::vector<std::string>& stream_names) {
  const auto number = static_cast<size_t>(access.at.stream);
  const char* stream = number < stream_names.size() ? stream_names[number].c_str() : "?";
  return WorkName(access.verb, access.operand, access.step) + " on stream \"" + stream + "\"";
}

bool Contains(const AccessRegion& outer, const AccessRegion& inner) {
  if (outer.dense) return outer.begin <= inner.begin && inner.end <= outer.end;
  if (outer.data != inner.data || outer.stride != inner.stride || outer.element != inner.element) {
    return false;
  }
  for (size_t d = 0; d < outer.low.size(); ++d) {
    if (inner.low[d] < outer.low[d] || inner.high[d] > outer.high[d]) return false;
  }
  return true;
}

// An access that conflicts with `old` also conflicts with `now`, which comes later.
bool Supersedes(const Access& now, const Access& old) {
  return (now.write || !old.write) && Contains(now.region, old.region);
}

}  // namespace

std::string WorkName(const char* verb, const char* operand, int64_t step) {
  std::string name = verb;
  if (operand[0] != '\0') name += std::string(" ") + operand;
  return step < 0 ? name : Format("%s (step %lld)", name.c_str(), static_cast<long long>(step));
}

AccessRegion BytesAt(const void* pointer, int64_t bytes) {
  AccessRegion region;
  if (pointer == nullptr) return region;
  region.begin = reinterpret_cast<uintptr_t>(pointer);
  region.end = region.begin + static_cast<uintptr_t>(std::max<int64_t>(bytes, 0));
  return region;
}

AccessRegion HostRegion(const Transfer& transfer) {
  AccessRegion region;
  region.data = transfer.view.data;
  region.stride = transfer.view.stride;
  region.element = SizeOf(transfer.view.dtype);
  int64_t elements = 1, lowest = 0, highest = 0;  // element offsets of the hull
  for (size_t d = 0; d < region.low.size(); ++d) {
    const Box& box = transfer.box;
    region.low[d] = std::max(box.valid_begin[d], box.origin[d] + transfer.tile_begin[d]);
    region.high[d] = std::min(box.valid_end[d], box.origin[d] + transfer.tile_end[d]);
    if (region.low[d] >= region.high[d]) return {};
    const int64_t first = region.low[d] * region.stride[d];
    const int64_t last = (region.high[d] - 1) * region.stride[d];
    lowest += std::min(first, last);
    highest += std::max(first, last);
    elements = Mul(elements, region.high[d] - region.low[d]);
  }
  const auto base = reinterpret_cast<uintptr_t>(region.data);
  region.begin = base + static_cast<uintptr_t>(lowest * region.element);
  region.end = base + static_cast<uintptr_t>((highest + 1) * region.element);
  region.dense = highest - lowest + 1 == elements;
  return region;
}

AccessRegion TileRegion(const void* tile, const TileLayout& layout, const Dims& begin,
                        const Dims& end) {
  AccessRegion region = BytesAt(tile, layout.bytes);
  region.dense = false;
  region.tile = true;
  region.data = tile;
  region.stride = layout.stride;
  region.element = SizeOf(layout.dtype);
  region.low = begin;
  region.high = end;
  return region;
}

bool Overlap(const AccessRegion& a, const AccessRegion& b) {
  if (a.empty() || b.empty() || a.end <= b.begin || b.end <= a.begin) return false;
  if (a.dense && b.dense) return true;
  if (a.data != b.data || a.stride != b.stride || a.element != b.element) return a.tile || b.tile;
  for (size_t d = 0; d < a.low.size(); ++d) {
    if (a.high[d] <= b.low[d] || b.high[d] <= a.low[d]) return false;
  }
  return true;
}

void Hazards::Add(const Order& order, Stream stream, const Access& access,
                  const std::vector<std::string>& stream_names, std::vector<std::string>* reports) {
  if (access.region.empty()) return;
  size_t kept = 0;
  for (size_t i = 0; i < accesses_.size(); ++i) {
    const Access& old = accesses_[i];
    const bool before = order.Before(old.at, stream);
    if (!before && (old.write || access.write) && Overlap(old.region, access.region)) {
      reports->push_back(
          Format("%s %s bytes that %s %s, and nothing orders the two: a Wait is missing",
                 Describe(access, stream_names).c_str(), access.write ? "writes" : "reads",
                 Describe(old, stream_names).c_str(), old.write ? "writes" : "reads"));
    }
    if (before && Supersedes(access, old)) continue;
    if (kept != i) accesses_[kept] = old;
    ++kept;
  }
  accesses_.resize(kept);
  accesses_.push_back(access);
}

std::string Hazards::InFlight(const Order& order, const AccessRegion& region,
                              const std::vector<std::string>& stream_names) const {
  for (const Access& access : accesses_) {
    if (!order.Done(access.at) && Overlap(access.region, region)) {
      return Describe(access, stream_names);
    }
  }
  return {};
}

void Hazards::Prune(const Order& order) {
  std::erase_if(accesses_, [&](const Access& access) { return order.Done(access.at); });
}

}  // namespace oocdnn
