#include "exec/staging.hpp"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "base/checked.hpp"
#include "exec/host_copy.hpp"

namespace oocdnn {
namespace {

// Eight threads copy 68 GB/s where the wire carries 55 in each direction.
constexpr int kFillTheWire = 12;
// A copy engine reaches 50 of the wire's 55 GB/s with pieces of this size; eight slabs of it for
// each of two operands stay in a large server's caches.
constexpr int64_t kPieceBytes = int64_t{8} << 20;
constexpr int64_t kPage = 4096;

// Of the largest cache, which the cores share; 0 where the system does not say.
int64_t CacheBytes() {
  static const int64_t bytes = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  return bytes;
}

bool HasOneBox(const Problem& problem, const Candidate& plan, Operand operand) {
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (Moves(problem, operand, axis) && plan.tiling.Count(axis) > 1) return false;
  }
  return true;
}

int ThreadsFor(int wanted) {
  if (wanted > 0) return wanted;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kFillTheWire);
}

}  // namespace

Staging::Staging(Device& device, int threads) : device_(device), team_(ThreadsFor(threads)) {}

Status Staging::Init() {
  Lane full;
  full.slab.resize(kMostSlabs);
  lanes_.assign(kOperands, full);
  Status made = MakeEvents();
  lanes_.clear();
  return made;
}

Status Staging::MakeEvents() {
  if (event_.size() < lanes_.size()) event_.resize(lanes_.size());
  for (size_t i = 0; i < lanes_.size(); ++i) {
    for (size_t slab = 0; slab < lanes_[i].slab.size(); ++slab) {
      OwnedEvent& event = event_[i][slab];
      if (event.get() != nullptr) continue;
      OOC_ASSIGN(event, MakeEvent(device_, EventUse::kHost));
    }
  }
  return {};
}

Event Staging::EventOf(size_t number, int64_t piece) const {
  return event_[number][static_cast<size_t>(piece) % lanes_[number].slab.size()].get();
}

bool Staging::Reaches(const TensorView& tensor) const {
  if (tensor.in_file()) return false;
  return IsReached(tensor.location.tier) || device_.capabilities().reads_host;
}

Staging::Lane Staging::LaneOf(const TensorView& tensor, const Use& use, int64_t piece_bytes) {
  Lane lane;
  lane.tensor = tensor;
  lane.packing = PackingOf(tensor.dtype, tensor.stride, use.box);
  lane.most = use.box;
  if (tensor.in_file()) {
    lane.slab.resize(use.single ? 1 : use.written ? kWriteFile : kReadFile);
    return lane;
  }
  lane.most = LargestPiece(lane.packing, use.box, piece_bytes);
  const int64_t bytes = RoundUp(PackedLayout(lane.packing, lane.most).bytes, kPage);
  const int64_t pieces = Cut(lane.packing, {{}, use.box}, lane.most).count();
  const int64_t count =
      std::clamp<int64_t>(kSlabs * piece_bytes / std::max(bytes, kPage), 2, kMostSlabs);
  lane.slab.resize(static_cast<size_t>(use.single ? std::min(count, pieces) : count));
  return lane;
}

Staging::Lanes Staging::LanesOf(const std::vector<Need>& needs, int64_t cap) {
  int64_t in_memory = 0;  // lanes
  for (const Need& need : needs) in_memory += need.staged && !need.tensor.in_file();
  // Half of the memory that is allowed is left to files and to what rounding up takes.
  const int64_t share = cap / 2 / (std::max<int64_t>(in_memory, 1) * kSlabs);
  Lanes lanes(needs.size());
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (!needs[i].staged) continue;
    lanes[i] = LaneOf(needs[i].tensor, needs[i].use, std::min(kPieceBytes, share));
  }
  return lanes;
}

std::vector<int64_t> Staging::SizesOf(const Lanes& lanes) {
  std::vector<int64_t> sizes;
  for (const Lane& lane : lanes) {
    if (lane.slab.empty()) continue;
    sizes.insert(sizes.end(), lane.slab.size(), PackedLayout(lane.packing, lane.most).bytes);
  }
  return sizes;
}

Staging::Uses Staging::UsesOf(const Problem& problem, const Candidate& plan) {
  Uses uses;
  const ConvShape tile = TileShape(problem, plan.tiling);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    uses[i].used = problem.Has(operand);
    uses[i].written = problem.Writes(operand);
    uses[i].single = HasOneBox(problem, plan, operand);
    const Dims box = tile.DimsOf(operand, problem.direction);
    const Dims whole = problem.DimsOf(operand);
    for (int d = 0; d < 6; ++d) uses[i].box[d] = std::min(box[d], whole[d]);
  }
  return uses;
}

int64_t Staging::PageableBytes(const Problem& problem, const Candidate& plan, int64_t cap) {
  const Uses uses = UsesOf(problem, plan);
  std::vector<Need> needs(kOperands);
  for (size_t i = 0; i < needs.size(); ++i) {
    needs[i].use = uses[i];
    needs[i].staged = uses[i].used && !plan.pinned[i];
    needs[i].tensor.dtype = problem.DTypeOf(static_cast<Operand>(i));
    needs[i].tensor.stride = problem.stride[i];
  }
  return Slabs::BytesOf(SizesOf(LanesOf(needs, cap)));
}

Status Staging::Begin(const std::vector<Link>& links, Slabs& slabs) {
  std::vector<Need> needs;
  needs.reserve(links.size() * kOperands);
  for (const Link& link : links) {
    for (size_t i = 0; i < kOperands; ++i) {
      const TensorView& tensor = link.tensors[i];
      needs.push_back({tensor, link.uses[i], link.uses[i].used && !Reaches(tensor)});
    }
  }
  lanes_ = LanesOf(needs, slabs.cap());
  OOC_TRY(MakeEvents());
  const std::vector<int64_t> sizes = SizesOf(lanes_);
  cached_ = std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) <= CacheBytes() / 2;
  Status reserved = slabs.Reserve(sizes);
  slabs_location_ = slabs.location();
  size_t next = 0;
  for (Lane& lane : lanes_) {
    if (!reserved.ok()) lane.slab.clear();
    for (Slab& slab : lane.slab) slab.memory = slabs.At(next++);
  }
  return reserved;
}

TensorView Staging::ViewOf(const Lane& lane, const Slab& slab) const {
  Dims extent{};
  for (int d = 0; d < 6; ++d) extent[d] = slab.piece.end[d] - slab.piece.begin[d];
  TensorView view = lane.tensor;
  view.stride = PackedLayout(lane.packing, extent).stride;
  int64_t back = 0;  // the view's element (0, ..., 0) lies before the slab
  for (int d = 0; d < 6; ++d) back += slab.piece.begin[d] * view.stride[d];
  view.data = static_cast<char*>(slab.memory) - back * SizeOf(view.dtype);
  view.location = slabs_location_;
  return view;
}

Cut Staging::CutOf(size_t number, const Piece& part) const {
  const Lane& lane = lanes_[number];
  return {lane.packing, part, lane.most};
}

bool Staging::HasRoom(size_t number) const {
  const Lane& lane = lanes_[number];
  return lane.head - lane.tail < static_cast<int64_t>(lane.slab.size());
}

// One thread is best for files: they are read and written in order. Where the system refuses
// another one, one does all.
Status Staging::Submit(Workers* workers, const Lane& lane, const HostWorker::Job& job, Slab* slab) {
  slab->worker = lane.tensor.in_file() ? 0 : static_cast<size_t>(lane.head) % workers->size();
  Result<HostWorker::Ticket> ticket = (*workers)[slab->worker].Submit(job);
  if (!ticket.ok() && slab->worker != 0) {
    slab->worker = 0;
    ticket = (*workers)[0].Submit(job);
  }
  OOC_ASSIGN(slab->ticket, std::move(ticket));
  return {};
}

// The fetch that last read this slab must have run before the reader overwrites it.
Status Staging::Post(size_t number, const Piece& piece) {
  Lane& lane = lanes_[number];
  Slab& slab = lane.at(lane.head);
  slab.piece = piece;
  const auto job = [this, event = EventOf(number, lane.head), &lane, piece,
                    memory = slab.memory]() -> Status {
    OOC_TRY(device_.Synchronize(event));
    if (lane.tensor.in_file()) return ReadBox(lane.file(), piece.begin, piece.end, memory);
    PackBox(team_, lane.tensor.data, lane.packing, piece.begin, piece.end, memory, cached_);
    return {};
  };
  OOC_TRY(Submit(&readers_, lane, job, &slab));
  ++lane.head;
  return {};
}

Result<TensorView> Staging::Take(size_t number) {
  Lane& lane = lanes_[number];
  const Slab& slab = lane.at(lane.tail);
  OOC_TRY(readers_[slab.worker].Wait(slab.ticket));
  return ViewOf(lane, slab);
}

Status Staging::Taken(size_t number, Stream stream) {
  Lane& lane = lanes_[number];
  return device_.Record(EventOf(number, lane.tail++), stream);
}

Result<TensorView> Staging::Give(size_t number, const Piece& piece) {
  Lane& lane = lanes_[number];
  Slab& slab = lane.at(lane.head);
  OOC_TRY(writers_[slab.worker].Wait(slab.ticket));
  slab.piece = piece;
  return ViewOf(lane, slab);
}

Status Staging::Given(size_t number, Stream stream) {
  Lane& lane = lanes_[number];
  const Event event = EventOf(number, lane.head);
  OOC_TRY(device_.Record(event, stream));
  Slab& slab = lane.at(lane.head);
  const auto job = [this, event, &lane, piece = slab.piece, memory = slab.memory]() -> Status {
    OOC_TRY(device_.Synchronize(event));
    if (lane.tensor.in_file()) return WriteBox(lane.file(), piece.begin, piece.end, memory);
    UnpackBox(team_, lane.tensor.data, lane.packing, piece.begin, piece.end, memory);
    return {};
  };
  OOC_TRY(Submit(&writers_, lane, job, &slab));
  ++lane.head;
  return {};
}

Status Staging::End() {
  Status first;
  for (Workers* const workers : {&readers_, &writers_}) {
    for (HostWorker& worker : *workers) {
      Status done = worker.Finish();
      if (first.ok()) first = std::move(done);
    }
  }
  return first;
}

}  // namespace oocdnn
