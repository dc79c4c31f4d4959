#include "device/cuda/copier.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "device/cuda/pointer_facts.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int kZeroThreads = 256;
constexpr int64_t kLeastPart = 256;  // bytes of a part of the bounce memory; also its alignment

Status CheckPlain(const TileLayout& layout) {
  if (!layout.opaque && layout.channel_block == 1) return {};
  return Error(Code::kUnsupported,
               "the CUDA device copies plain tiles only, not opaque ones or ones with channel "
               "blocks");
}

CopyDirection DirectionOf(Side wire) {
  return wire == Side::kFrom ? CopyDirection::kIn : CopyDirection::kOut;
}

}  // namespace

Result<Tier> Copier::Locate(const Transfer& transfer, Side side, StridedCopy* copy) const {
  const AddressRange range = RangeOf(*copy, side);
  Location location = transfer.view.location;
  if (location.tier == Tier::kUnknown) {
    OOC_ASSIGN(const PointerFacts facts,
               FactsOf(gpu_.driver(), range.begin, range.end - range.begin));
    location = LocationOf(facts, range.begin, gpu_.ordinal());
  }
  if (location.tier == Tier::kPeer) {
    return Error(Code::kUnsupported, "operand %d lies on GPU %d, and this device is GPU %d",
                 Index(transfer.operand), location.device, gpu_.ordinal());
  }
  if (!IsReached(location.tier)) {
    return Error(Code::kUnsupported,
                 "operand %d lies in pageable host memory at 0x%llx (%lld bytes), which %s reaches "
                 "only through pinned memory: stage it, or pin it",
                 Index(transfer.operand), static_cast<unsigned long long>(range.begin),
                 static_cast<long long>(range.end - range.begin), gpu_.name().c_str());
  }
  (side == Side::kFrom ? copy->from : copy->to) += static_cast<uint64_t>(location.shift);
  return location.tier;
}

Status Copier::EnqueueCall(CUstream stream, uint64_t from, uint64_t to,
                           const EngineCopy& engine) const {
  if (engine.rows == 1 && engine.planes == 1) {
    OOC_CUDA(gpu_.driver(), cuMemcpyAsync, to, from, static_cast<size_t>(engine.width), stream);
    return {};
  }
  CUDA_MEMCPY3D call{};  // NOLINT(bugprone-invalid-enum-default-initialization)
  call.srcMemoryType = call.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  call.srcDevice = from;
  call.dstDevice = to;
  call.srcPitch = static_cast<size_t>(engine.from_pitch);
  call.dstPitch = static_cast<size_t>(engine.to_pitch);
  call.srcHeight = static_cast<size_t>(engine.from_height);
  call.dstHeight = static_cast<size_t>(engine.to_height);
  call.WidthInBytes = static_cast<size_t>(engine.width);
  call.Height = static_cast<size_t>(engine.rows);
  call.Depth = static_cast<size_t>(engine.planes);
  OOC_CUDA(gpu_.driver(), cuMemcpy3DAsync, &call, stream);
  return {};
}

Status Copier::EnqueueEngine(CUstream stream, const StridedCopy& copy,
                             const EngineCopy& engine) const {
  const int64_t calls = engine.Calls();
  for (int64_t call = 0; call < calls; ++call) {
    int64_t rest = call, from = 0, to = 0;
    for (const PlanDim& dim : engine.outer) {
      from += rest % dim.extent * dim.from;
      to += rest % dim.extent * dim.to;
      rest /= dim.extent;
    }
    OOC_TRY(EnqueueCall(stream, copy.from + static_cast<uint64_t>(from),
                        copy.to + static_cast<uint64_t>(to), engine));
  }
  return {};
}

Status Copier::Enqueue(CUstream stream, StridedCopy copy, Tier tier, Side wire) const {
  if (copy.Elements() > kMostElements) {
    StridedCopy rest = CutInHalf(&copy);
    OOC_TRY(Enqueue(stream, std::move(copy), tier, wire));
    return Enqueue(stream, std::move(rest), tier, wire);
  }
  const CopyPlan plan = PlanCopy(copy, tier, wire, limits_);
  const LaunchShape shape{plan.blocks, plan.threads, plan.shared_bytes};
  switch (plan.method) {
    case Method::kNothing: return {};
    case Method::kEngine: return EnqueueEngine(stream, copy, plan.engine);
    case Method::kRows: return gpu_.Launch(Kernel::kRows, shape, stream, plan.rows);
    case Method::kTranspose: return gpu_.Launch(Kernel::kTranspose, shape, stream, plan.transpose);
  }
  return {};
}

// The lane runs ahead by the parts of the bounce memory: a copy engine is not kept waiting for a
// kernel, nor for the last piece of the transfer before.
Status Copier::Cross(CudaStream& stream, StridedCopy copy, Tier tier, Side wire,
                     const Bounce& bounce) const {
  if (tier == Tier::kDevice) return Enqueue(stream.handle(), std::move(copy), tier, wire);
  int64_t part = bounce.bytes / static_cast<int64_t>(Lane::kParts) / kLeastPart * kLeastPart;
  const bool relays = part >= kLeastPart && GainsByRelay(copy, wire, limits_);
  OOC_ASSIGN(PeerPaths * paths, stream.GetPaths());
  if (!EngineCrosses(copy, wire, limits_)) paths = nullptr;
  if (!relays && paths == nullptr) return Enqueue(stream.handle(), std::move(copy), tier, wire);
  if (paths != nullptr) {
    part = relays ? std::min(part, paths->piece_bytes()) : paths->piece_bytes();
  }
  Lane* lane = nullptr;
  if (relays) {
    OOC_ASSIGN(lane, stream.GetLane());
  }
  for (const StridedCopy& piece : PiecesOf(copy, wire, part)) {
    PeerPath* path = nullptr;
    if (paths != nullptr && EngineCrosses(piece, wire, limits_)) {
      OOC_ASSIGN(path, paths->Choose(BytesOf(piece, wire)));
    }
    if (path != nullptr) {
      OOC_TRY(EnqueueThrough(*path, piece, wire));
    } else if (relays) {
      const auto offset = static_cast<uint64_t>(part) * lane->turn;
      const Relay relay = RelayOf(piece, wire, Address(bounce.data) + offset);
      OOC_TRY(EnqueueRelay(stream, relay, lane, paths, wire));
    } else {
      OOC_TRY(EnqueueOverWire(paths, stream.handle(), piece, wire));
    }
  }
  return {};
}

// The step beyond the wire counts as one over it: by a copy engine where rows are long, else by few
// multiprocessors.
Status Copier::EnqueueThrough(PeerPath& path, const StridedCopy& piece, Side wire) const {
  const auto first = [&](CUstream stream, CUdeviceptr middle) {
    return Enqueue(stream, RelayOf(piece, wire, middle).first, Tier::kPinned, wire);
  };
  const auto second = [&](CUstream stream, CUdeviceptr middle) {
    return Enqueue(stream, RelayOf(piece, wire, middle).second, Tier::kPinned, wire);
  };
  return path.Carry(DirectionOf(wire), BytesOf(piece, wire), first, second);
}

Status Copier::EnqueueOverWire(PeerPaths* paths, CUstream stream, const StridedCopy& copy,
                               Side wire) const {
  const auto enqueue = [&] { return Enqueue(stream, copy, Tier::kPinned, wire); };
  if (paths == nullptr) return enqueue();
  return paths->OverOwnLink(stream, BytesOf(copy, wire), enqueue);
}

Status Copier::EnqueueRelay(CudaStream& stream, const Relay& relay, Lane* lane, PeerPaths* paths,
                            Side wire) const {
  const Driver& driver = gpu_.driver();
  const bool fetch = wire == Side::kFrom;
  const size_t turn = lane->turn;
  lane->turn = (turn + 1) % Lane::kParts;
  OOC_CUDA(driver, cuStreamWaitEvent, lane->handle, lane->emptied[turn], 0);
  OOC_TRY(fetch ? EnqueueOverWire(paths, lane->handle, relay.first, wire)
                : Enqueue(lane->handle, relay.first, Tier::kDevice, wire));
  OOC_CUDA(driver, cuEventRecord, lane->filled[turn], lane->handle);
  OOC_CUDA(driver, cuStreamWaitEvent, stream.handle(), lane->filled[turn], 0);
  OOC_TRY(fetch ? Enqueue(stream.handle(), relay.second, Tier::kDevice, wire)
                : EnqueueOverWire(paths, stream.handle(), relay.second, wire));
  OOC_CUDA(driver, cuEventRecord, lane->emptied[turn], stream.handle());
  return {};
}

Status Copier::Zero(CUstream stream, const Transfer& transfer) const {
  const ZeroArgs zeros = ZerosOf(transfer);
  if (zeros.boxes == 0) return {};
  Long most = 0;
  for (int b = 0; b < zeros.boxes; ++b) most = std::max(most, zeros.box[b].count);
  const Long blocks = std::min<Long>(CeilDiv(most, kZeroThreads), gpu_.multiprocessors() * 8);
  return gpu_.Launch(Kernel::kZero, {blocks, kZeroThreads, 0}, stream, zeros);
}

Status Copier::Fetch(CudaStream& stream, const Transfer& transfer) const {
  OOC_TRY(CheckPlain(*transfer.layout));
  OOC_TRY(stream.Turn(CopyDirection::kIn));
  StridedCopy copy = CopyOf(transfer, Toward::kTile);
  if (copy.Elements() == 0) return Zero(stream.handle(), transfer);
  Simplify(&copy, Side::kFrom);
  OOC_ASSIGN(const Tier tier, Locate(transfer, Side::kFrom, &copy));
  OOC_TRY(Zero(stream.handle(), transfer));
  return Cross(stream, std::move(copy), tier, Side::kFrom, transfer.bounce);
}

Status Copier::Drain(CudaStream& stream, const Transfer& transfer) const {
  OOC_TRY(CheckPlain(*transfer.layout));
  OOC_TRY(stream.Turn(CopyDirection::kOut));
  StridedCopy copy = CopyOf(transfer, Toward::kView);
  if (copy.Elements() == 0) return {};
  Simplify(&copy, Side::kTo);
  OOC_ASSIGN(const Tier tier, Locate(transfer, Side::kTo, &copy));
  return Cross(stream, std::move(copy), tier, Side::kTo, transfer.bounce);
}

Status Copier::Move(CudaStream& stream, const TileMove& move) const {
  OOC_TRY(CheckPlain(*move.layout));
  return CopyInside(stream.handle(), CopyOf(move));
}

Status Copier::CopyInside(CUstream stream, StridedCopy copy) const {
  if (copy.Elements() == 0) return {};
  Simplify(&copy, Side::kTo);
  return Enqueue(stream, std::move(copy), Tier::kDevice, Side::kTo);
}

}  // namespace oocdnn::cuda
