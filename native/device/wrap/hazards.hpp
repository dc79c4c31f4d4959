// Hazards: remembers which bytes enqueued work touches, and names every pair of conflicting
// accesses that nothing orders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/wrap/order.hpp"

namespace oocdnn {

// The bytes that an access touches: a plain range, or a box of a strided tensor or of a tile, of
// which [begin, end) is only the hull.
struct AccessRegion {
  uintptr_t begin = 0, end = 0;
  bool dense = true;           // every byte of the hull is touched
  bool tile = false;           // against what is no box of the same tile, the hull counts
  const void* data = nullptr;  // the rest describes the box
  int64_t element = 0;
  Dims stride{}, low{}, high{};

  [[nodiscard]] bool empty() const { return begin >= end; }
};

// "fetch x (step 3)", or less where there is no operand or step.
std::string WorkName(const char* verb, const char* operand, int64_t step);

AccessRegion BytesAt(const void* pointer, int64_t bytes);
// What a transfer touches of the caller's tensor: the valid elements of the part it copies.
AccessRegion HostRegion(const Transfer& transfer);
// The part [begin, end) of a tile, in box coordinates.
AccessRegion TileRegion(const void* tile, const TileLayout& layout, const Dims& begin,
                        const Dims& end);

// Whether two regions share bytes. Boxes of one view or tile are compared element by element; of
// two different views only dense ones can be told, and others count as disjoint; a tile
// overlaps whatever else meets its hull.
bool Overlap(const AccessRegion& a, const AccessRegion& b);

struct Access {
  AccessRegion region;
  bool write = false;
  const char* verb = "";     // "fetch", "run", ...
  const char* operand = "";  // whose tile or tensor this is; "" where none has a name
  int64_t step = -1;
  Order::Point at;
};

class Hazards {
 public:
  // Adds an access of the latest work on `stream`; a sentence for each earlier access that it
  // conflicts with and that `order` does not put before it.
  void Add(const Order& order, Stream stream, const Access& access,
           const std::vector<std::string>& stream_names, std::vector<std::string>* reports);

  // A sentence where work that the host has not synchronised with touches the region, else "".
  [[nodiscard]] std::string InFlight(const Order& order, const AccessRegion& region,
                                     const std::vector<std::string>& stream_names) const;

  // Forgets what everything enqueued from now on comes after. Call when the host has synchronised.
  void Prune(const Order& order);

 private:
  std::vector<Access> accesses_;
};

}  // namespace oocdnn
