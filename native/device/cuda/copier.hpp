// Copier: enqueues what copy_plan decides.
#pragma once

#include "device/cuda/copy_plan.hpp"
#include "device/cuda/gpu.hpp"
#include "device/cuda/stream.hpp"

namespace oocdnn::cuda {

// All calls need the GPU's context current. Layouts must be plain (no channel blocks, not opaque);
// views must lie on this GPU or in pinned memory: kUnsupported with the reason otherwise, and then
// nothing has been enqueued.
class Copier {
 public:
  explicit Copier(const Gpu& gpu) : gpu_(gpu), limits_{gpu.max_pitch(), gpu.multiprocessors()} {}

  Status Fetch(CudaStream& stream, const Transfer& transfer) const;
  Status Drain(CudaStream& stream, const Transfer& transfer) const;
  Status Move(CudaStream& stream, const TileMove& move) const;
  // Within the device's memory.
  Status CopyInside(CUstream stream, StridedCopy copy) const;

 private:
  // Where the view's side lies; its addresses become those that the device uses.
  Result<Tier> Locate(const Transfer& transfer, Side side, StridedCopy* copy) const;
  // As one copy, or in pieces: through the bounce memory where that is faster, and over the links
  // of peers where there are any.
  Status Cross(CudaStream& stream, StridedCopy copy, Tier tier, Side wire,
               const Bounce& bounce) const;
  Status EnqueueRelay(CudaStream& stream, const Relay& relay, Lane* lane, PeerPaths* paths,
                      Side wire) const;
  Status EnqueueThrough(PeerPath& path, const StridedCopy& piece, Side wire) const;
  // Over the GPU's own link, whose rate `paths` watches; it may be null.
  Status EnqueueOverWire(PeerPaths* paths, CUstream stream, const StridedCopy& copy,
                         Side wire) const;
  Status Enqueue(CUstream stream, StridedCopy copy, Tier tier, Side wire) const;
  Status EnqueueEngine(CUstream stream, const StridedCopy& copy, const EngineCopy& engine) const;
  Status EnqueueCall(CUstream stream, uint64_t from, uint64_t to, const EngineCopy& engine) const;
  Status Zero(CUstream stream, const Transfer& transfer) const;

  const Gpu& gpu_;
  const CopyLimits limits_;
};

}  // namespace oocdnn::cuda
