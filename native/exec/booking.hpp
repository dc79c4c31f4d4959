// Booking: a candidate whose engine has been prepared, with an offset for every slot. What a plan
// becomes once exact bytes are known; it can be run any number of times.
//
// Operands on the device need no slots where a tile is a part of the caller's tensor as it lies
// there: the whole of it, or some of its samples (a divided batch).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "geom/chain.hpp"
#include "geom/program.hpp"
#include "model/plan.hpp"

namespace oocdnn {

// What computes one part of a tile's work.
struct PreparedPart {
  Part part;
  std::shared_ptr<Executable> executable;
  // It reads another tile of dy than the slot's: one in a layout of its own, or of fewer rows.
  bool own_dy = false;
  bool fuses = false;  // it finishes its sums, see TileOp::epilogue
};

// Tiles of one shape: what computes them, and how they lie in the slots of each used operand.
struct PreparedTiles {
  std::vector<PreparedPart> parts;  // the problem's own first
  std::array<TileLayout, kOperands> layout;

  [[nodiscard]] const Executable& executable() const { return *parts.front().executable; }
  [[nodiscard]] bool fuses() const { return parts.front().fuses; }
};

// Tiles of a tensor that several nodes use, as one of them sees them: whole samples without
// padding, in a plain layout and in the caller's type. Nodes whose own layout differs copy from and
// to them.
struct SharedTiles {
  std::vector<int64_t> slot;  // offsets into the arena
  TileLayout usual, ends;
};

struct Booking {
  Problem problem;
  Candidate candidate;
  PreparedTiles usual, ends;                         // `ends`: the short tiles of a taper, if any
  std::array<std::vector<int64_t>, kOperands> slot;  // offsets into the arena
  InPlace in_place{};  // tiles are parts of the caller's own memory, and there are no slots
  // Operands whose tiles have slots and are neither fetched nor drained by this node: other nodes
  // leave them there, or read them. `relays`: the tile of z is copied to the next link's x, whose
  // layout a finishing pass cannot write.
  std::array<bool, kOperands> inner{};
  bool relays = false;
  // Rows of an inner x that the next tile of a sweep has too, beside the tile, whose memory others
  // have in the meantime: how they lie, and at which offset.
  TileLayout kept_layout;
  int64_t kept = 0;
  // What the engine writes is z, which is y; what does not exist of it is zeros, for the next link.
  bool writes_z = false;
  // Whose tile an inner residual is: the z of that link, or the first one's x. `copies`: to a tile
  // of its own, which lies as the sum does.
  int64_t residual = kFromOutside;
  bool copies = false;
  // Of tensors that problems share, those whose tiles do not lie as this one's: on the stream that
  // computes they are copied to its own tiles, or from these. One that is the caller's is fetched
  // as they lie.
  std::array<std::shared_ptr<const SharedTiles>, kOperands> shared;
  // The use that fetches an inner operand. Its slot is filled again only when this one has read.
  std::array<std::optional<TensorUse>, kOperands> lender;
  int64_t workspace = 0;  // offset
  int64_t own_dy = 0;     // offset of the tile that parts take turns with, see PreparedPart
  std::array<int64_t, 2> bounce{};  // offsets: for fetches, for drains
  int64_t bounce_bytes = 0;         // of each
  int64_t bytes = 0;                // of the arena, exactly

  // Of the workspace, which all parts of tiles of both shapes share, and of the tile `own_dy`.
  [[nodiscard]] int64_t WorkspaceBytes() const;
  [[nodiscard]] int64_t OwnDyBytes() const;
  // Whether a tile of the operand crosses between the caller's memory and a slot.
  [[nodiscard]] bool Crosses(Operand operand) const {
    return !in_place[Index(operand)] && !inner[Index(operand)];
  }
  [[nodiscard]] const PreparedTiles& Of(const TileIndex& index) const {
    return candidate.tiling.IsShort(index) ? ends : usual;
  }
};

// In the place of a link's number: it is the short tiles that cannot be, or their lying in a slot
// that usual tiles have too.
constexpr int64_t kShortTiles = -1;
// Or that tiles keep rows for each other.
constexpr int64_t kSweeps = -2;

// The shape of a booking's usual tiles, or of its short ones.
using ShapeOfTiles = std::function<ConvShape(bool is_short)>;

// Prepares the booking's candidate for each shape of tiles: an engine for each part of their work,
// with at most `workspace` bytes. Of gradients that come along, what the candidate's engine refuses
// another one computes. kUnsupported where that cannot be, where an engine wants more workspace
// than the request allows, or what both shapes use lies in two layouts.
Status Prepare(Device& device, const PlanRequest& request, const ShapeOfTiles& shape_of,
               int64_t workspace, Booking* booking);
// A tile that lies as the caller's tensor does, in its type.
TileLayout DenseLayout(const Problem& problem, const ConvShape& tile, Operand operand);
// Whether what computes finds the same in tiles of either layout.
bool LieAlike(const TileLayout& a, const TileLayout& b);
// Of a slot of the operand, as large as the larger of the two shapes needs.
int64_t SlotBytes(const Booking& booking, int operand);
// Whether the operand's tiles are parts of a tensor in the caller's memory, aligned as the device
// wants them.
bool UsedInPlace(const Booking& booking, Operand operand, int64_t alignment);

// Prepares the candidate and books offsets. kUnsupported as above; kOutOfMemory (detail(): the
// exact bytes) where the exact bytes pass `budget`. The request's own budget may be smaller: that
// is what the search was told to aim at. Of a candidate that cuts nothing but the batch, those
// operands are used in place that may be and whose tiles would lie alike.
Result<Booking> Book(Device& device, const PlanRequest& request, const Candidate& candidate,
                     int64_t budget);

}  // namespace oocdnn
