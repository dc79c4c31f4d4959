// Copies are contiguous and as large as those that are measured, so that the wire is all that they
// wait for. Two in each direction are under way, so that it is never idle.
#include "calibrate/busy_peer_load.hpp"

#include <cstring>
#include <utility>

#include "base/guarded.hpp"
#include "base/thread.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kBytes = int64_t{32} << 20;

// All of it is one row.
TileLayout RowLayout() {
  TileLayout layout;
  layout.dtype = DType::kFloat32;
  layout.shape = {1, 1, 1, 1, 1, kBytes / SizeOf(layout.dtype)};
  layout.stride = DenseStrides(layout.shape);
  layout.bytes = kBytes;
  return layout;
}

Transfer TransferOf(Operand operand, void* host, void* tile, const TileLayout& layout) {
  Transfer transfer;
  transfer.operand = operand;
  transfer.view = {host, layout.dtype, layout.stride};
  transfer.box.extent = transfer.box.valid_end = transfer.tile_end = layout.shape;
  transfer.tile = tile;
  transfer.layout = &layout;
  return transfer;
}

}  // namespace

BusyPeerLoad::Way::Way(Device& device)
    : host(HostBlock(device, kBytes)), tile(DeviceBlock(device, kBytes)) {}

Status BusyPeerLoad::Way::Make(Device& device, const char* name) {
  if (host.get() == nullptr || tile.get() == nullptr) {
    return Error(Code::kOutOfMemory,
                 "there is no memory for copies beside those that are measured");
  }
  std::memset(host.get(), 0, static_cast<size_t>(kBytes));
  OOC_ASSIGN(stream, MakeStream(device, name));
  for (OwnedEvent& event : ended) {
    OOC_ASSIGN(event, MakeEvent(device, EventUse::kHost));
  }
  return {};
}

BusyPeerLoad::BusyPeerLoad(std::unique_ptr<Device> device)
    : device_(std::move(device)), layout_(RowLayout()), fetch_(*device_), drain_(*device_) {}

Result<std::unique_ptr<BusyPeerLoad>> BusyPeerLoad::Start(std::unique_ptr<Device> device) {
  std::unique_ptr<BusyPeerLoad> made(new BusyPeerLoad(std::move(device)));
  OOC_TRY(made->Make());
  return made;
}

Status BusyPeerLoad::Make() {
  OOC_TRY(fetch_.Make(*device_, "beside fetch"));
  OOC_TRY(drain_.Make(*device_, "beside drain"));
  for (int turn = 0; turn < 3; ++turn) OOC_TRY(Turn());  // the first has ended then
  OOC_ASSIGN(thread_, StartThread("ooc beside", [this] {
               while (!stop_ && copies_) copies_ = Guarded([this] { return Turn(); }).ok();
             }));
  return {};
}

Status BusyPeerLoad::Turn() {
  for (Way* way : {&fetch_, &drain_}) OOC_TRY(device_->Synchronize(way->ended[turn_].get()));
  OOC_TRY(device_->Fetch(fetch_.stream.get(),
                         TransferOf(Operand::kX, fetch_.host.get(), fetch_.tile.get(), layout_)));
  OOC_TRY(device_->Drain(drain_.stream.get(),
                         TransferOf(Operand::kY, drain_.host.get(), drain_.tile.get(), layout_)));
  for (Way* way : {&fetch_, &drain_}) {
    OOC_TRY(device_->Record(way->ended[turn_].get(), way->stream.get()));
  }
  turn_ = 1 - turn_;
  return {};
}

// Whatever failed, what is under way uses memory that then goes.
BusyPeerLoad::~BusyPeerLoad() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  for (const Way* way : {&fetch_, &drain_}) {
    if (way->stream.get() != nullptr) {
      static_cast<void>(device_->SynchronizeStream(way->stream.get()));
    }
  }
}

}  // namespace oocdnn
