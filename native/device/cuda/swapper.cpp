#include "device/cuda/swapper.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "device/cuda/host_memory.hpp"
#include "device/cuda/peer_paths.hpp"
#include "device/cuda/peers.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int64_t kAligned = 4096;  // bytes of whose multiples pieces are, but for the last

// Owns page-locked host memory, or memory of another GPU, the lender. Errors of freeing it are
// ignored: the process may be ending, and nobody is left to handle them.
class Slab {
 public:
  // `lender` is null for host memory. Both contexts outlive the slab.
  Slab(const PrimaryContext& context, const PrimaryContext* lender, void* address, int64_t bytes)
      : context_(&context), lender_(lender), address_(address), bytes_(bytes) {}
  ~Slab() {
    if (address_ == nullptr) return;
    const Current current(lender_ == nullptr ? *context_ : *lender_);
    if (lender_ == nullptr) {
      FreePinned(context_->driver(), address_, bytes_);
    } else {
      context_->driver().cuMemFree(Address(address_));
    }
  }
  Slab(Slab&& other) noexcept
      : context_(other.context_),
        lender_(other.lender_),
        address_(std::exchange(other.address_, nullptr)),
        bytes_(other.bytes_) {}
  Slab& operator=(Slab&&) = delete;

  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_borrowed() const { return lender_ != nullptr; }

 private:
  const PrimaryContext* context_;
  const PrimaryContext* lender_;
  void* address_;
  int64_t bytes_;
};

// A direction. Its copies begin in their order, and those over one link run one after the other.
struct Lane {
  CUstream stream = nullptr;
  CUevent reached = nullptr;         // by the stream of the caller, where a copy begins
  std::unique_ptr<PeerPaths> paths;  // beside the GPU's own link; null: it is the only one
};

class CudaSwapper final : public swap::Swapper {
 public:
  explicit CudaSwapper(PrimaryContext context) : context_(std::move(context)), peers_(context_) {}
  ~CudaSwapper() override;

  Status Prepare();
  Result<void*> AllocateSlab(int64_t bytes) override;
  Result<void*> BorrowSlab(int ordinal, int64_t bytes) override;
  Status BorrowLink(int ordinal, int64_t piece_bytes) override;
  Status FreeSlab(void* slab) override;
  Result<int64_t> Start(swap::Way way, swap::Stream stream, swap::Address device, void* slab,
                        int64_t bytes) override;
  Status Wait(int64_t ticket, swap::Stream stream) override;
  Result<bool> Done(int64_t ticket) override;

 private:
  [[nodiscard]] const Driver& driver() const { return context_.driver(); }
  Status Finish();
  Status Copy(const Lane& lane, PeerPaths* paths, CUdeviceptr from, CUdeviceptr to, int64_t bytes);
  // The number of an event that no copy uses, made where there is none. It is the next copy's
  // ticket.
  Result<size_t> FreeEvent();
  Result<CUevent> EventOf(int64_t ticket) const;

  const PrimaryContext context_;
  Peers peers_;
  std::array<Lane, 2> lanes_;    // by Way
  std::vector<CUevent> events_;  // at the end of a copy
  std::vector<bool> waiting_;    // for each of them: its copy has not been waited for
  std::vector<size_t> free_;     // the other ones
  BorrowedLinks links_;
  std::vector<PeerPath*> choices_;  // for the pieces of a copy
  std::unordered_map<void*, Slab> slabs_;
};

// Errors are ignored: the process may be ending, and nobody is left to handle them.
CudaSwapper::~CudaSwapper() {
  const Current current(context_);
  static_cast<void>(Finish());
  slabs_.clear();
  for (CUevent event : events_) driver().cuEventDestroy(event);
  for (Lane& lane : lanes_) {
    lane.paths.reset();
    if (lane.reached != nullptr) driver().cuEventDestroy(lane.reached);
    if (lane.stream != nullptr) driver().cuStreamDestroy(lane.stream);
  }
}

Status CudaSwapper::Prepare() {
  const Current current(context_);
  OOC_TRY(current.status());
  for (Lane& lane : lanes_) {
    OOC_CUDA(driver(), cuStreamCreateWithPriority, &lane.stream, CU_STREAM_NON_BLOCKING, 0);
    OOC_CUDA(driver(), cuEventCreate, &lane.reached, CU_EVENT_DISABLE_TIMING);
  }
  return {};
}

Status CudaSwapper::Finish() {
  Status status;
  for (const Lane& lane : lanes_) {
    if (lane.paths != nullptr) status.KeepFirst(lane.paths->Synchronize());
    if (lane.stream == nullptr) continue;
    const CUresult result = driver().cuStreamSynchronize(lane.stream);
    status.KeepFirst(driver().Check(result, "cuStreamSynchronize"));
  }
  return status;
}

Result<void*> CudaSwapper::AllocateSlab(int64_t bytes) {
  const Current current(context_);
  OOC_TRY(current.status());
  OOC_ASSIGN(void* const slab, AllocatePinned(driver(), bytes));
  slabs_.emplace(slab, Slab(context_, nullptr, slab, bytes));
  return slab;
}

Result<void*> CudaSwapper::BorrowSlab(int ordinal, int64_t bytes) {
  OOC_ASSIGN(const PrimaryContext* const lender, peers_.Reach(ordinal));
  const Current current(*lender);
  OOC_TRY(current.status());
  CUdeviceptr made = 0;
  const CUresult result = driver().cuMemAlloc(&made, static_cast<size_t>(bytes));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return Error(Code::kOutOfMemory, "GPU %d has no %lld bytes left to lend", ordinal,
                 static_cast<long long>(bytes));
  }
  OOC_TRY(driver().Check(result, "cuMemAlloc"));
  void* const slab = reinterpret_cast<void*>(made);  // NOLINT(performance-no-int-to-ptr)
  slabs_.emplace(slab, Slab(context_, lender, slab, bytes));
  return slab;
}

// The paths of the copies so far end here.
Status CudaSwapper::BorrowLink(int ordinal, int64_t piece_bytes) {
  OOC_ASSIGN(const PrimaryContext* const peer, peers_.Reach(ordinal));
  const auto& peers = links_.peers;
  if (std::find(peers.begin(), peers.end(), peer) != peers.end()) return {};
  const Current current(context_);
  OOC_TRY(current.status());
  OOC_TRY(Finish());
  BorrowedLinks links = links_;
  links.peers.push_back(peer);
  links.piece_bytes = piece_bytes;
  std::array<std::unique_ptr<PeerPaths>, 2> made;
  for (size_t way = 0; way < made.size(); ++way) {
    OOC_ASSIGN(made[way], PeerPaths::Make(context_, links, lanes_[way].stream, 0));
  }
  for (size_t way = 0; way < made.size(); ++way) lanes_[way].paths = std::move(made[way]);
  links_ = std::move(links);
  return {};
}

Status CudaSwapper::FreeSlab(void* slab) {
  const auto found = slabs_.find(slab);
  if (found == slabs_.end()) return Error(Code::kInvalidProblem, "%p is no slab", slab);
  {
    const Current current(context_);
    OOC_TRY(current.status());
    OOC_TRY(Finish());
  }
  slabs_.erase(found);
  return {};
}

Result<int64_t> CudaSwapper::Start(swap::Way way, swap::Stream stream, swap::Address device,
                                   void* slab, int64_t bytes) {
  const auto found = slabs_.find(slab);
  if (found == slabs_.end() || bytes > found->second.bytes()) {
    return Error(Code::kInvalidProblem, "a copy of %lld bytes needs a slab of as many; %p has %lld",
                 static_cast<long long>(bytes), slab,
                 found == slabs_.end() ? 0LL : static_cast<long long>(found->second.bytes()));
  }
  const Current current(context_);
  OOC_TRY(current.status());
  OOC_ASSIGN(const size_t number, FreeEvent());
  const Lane& lane = lanes_[static_cast<size_t>(way)];
  PeerPaths* const paths = found->second.is_borrowed() ? nullptr : lane.paths.get();
  OOC_CUDA(driver(), cuEventRecord, lane.reached, static_cast<CUstream>(stream));
  OOC_CUDA(driver(), cuStreamWaitEvent, lane.stream, lane.reached, 0);
  if (paths != nullptr) OOC_TRY(paths->Wait(lane.reached));
  const bool out = way == swap::Way::kOut;
  const CUdeviceptr beyond = Address(slab);
  Status copied = Copy(lane, paths, out ? device : beyond, out ? beyond : device, bytes);
  if (!copied.ok()) {
    static_cast<void>(Finish());  // a part may be under way, and nobody has a ticket for it
    return copied;
  }
  if (lane.paths != nullptr) {
    OOC_TRY(lane.paths->Record(events_[number]));
  } else {
    OOC_CUDA(driver(), cuEventRecord, events_[number], lane.stream);
  }
  free_.pop_back();
  waiting_[number] = true;
  return static_cast<int64_t>(number);
}

// The GPU's own link has the first pieces, in one copy.
Status CudaSwapper::Copy(const Lane& lane, PeerPaths* paths, CUdeviceptr from, CUdeviceptr to,
                         int64_t bytes) {
  const auto copy = [this](CUstream stream, CUdeviceptr begin, CUdeviceptr end, int64_t size) {
    OOC_CUDA(driver(), cuMemcpyAsync, end, begin, static_cast<size_t>(size), stream);
    return Status();
  };
  if (paths == nullptr) return copy(lane.stream, from, to, bytes);
  const CopyDirection direction = &lane == &lanes_[static_cast<size_t>(swap::Way::kOut)]
                                      ? CopyDirection::kOut
                                      : CopyDirection::kIn;
  const int64_t piece = RoundUp(CeilDiv(bytes, CeilDiv(bytes, paths->piece_bytes())), kAligned);
  choices_.clear();
  int64_t own = 0;
  for (int64_t at = 0; at < bytes; at += piece) {
    const int64_t size = std::min(piece, bytes - at);
    OOC_ASSIGN(PeerPath* const path, paths->Choose(size));
    if (path == nullptr) own += size;
    choices_.push_back(path);
  }
  if (own > 0) {
    OOC_TRY(paths->OverOwnLink(lane.stream, own, [&] { return copy(lane.stream, from, to, own); }));
  }
  auto at = static_cast<uint64_t>(own);
  for (PeerPath* path : choices_) {
    if (path == nullptr) continue;
    const int64_t size = std::min(piece, bytes - static_cast<int64_t>(at));
    OOC_TRY(path->Carry(
        direction, size,
        [&](CUstream stream, CUdeviceptr middle) { return copy(stream, from + at, middle, size); },
        [&](CUstream stream, CUdeviceptr middle) { return copy(stream, middle, to + at, size); }));
    at += static_cast<uint64_t>(size);
  }
  return {};
}

Status CudaSwapper::Wait(int64_t ticket, swap::Stream stream) {
  OOC_ASSIGN(CUevent const event, EventOf(ticket));
  const Current current(context_);
  OOC_TRY(current.status());
  OOC_CUDA(driver(), cuStreamWaitEvent, static_cast<CUstream>(stream), event, 0);
  waiting_[static_cast<size_t>(ticket)] = false;
  free_.push_back(static_cast<size_t>(ticket));
  return {};
}

Result<bool> CudaSwapper::Done(int64_t ticket) {
  OOC_ASSIGN(CUevent const event, EventOf(ticket));
  const Current current(context_);
  OOC_TRY(current.status());
  const CUresult result = driver().cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  OOC_TRY(driver().Check(result, "cuEventQuery"));
  return true;
}

Result<size_t> CudaSwapper::FreeEvent() {
  if (free_.empty()) {
    CUevent made = nullptr;
    OOC_CUDA(driver(), cuEventCreate, &made, CU_EVENT_DISABLE_TIMING);
    free_.push_back(events_.size());
    events_.push_back(made);
    waiting_.push_back(false);
    free_.reserve(events_.size());
  }
  return free_.back();
}

Result<CUevent> CudaSwapper::EventOf(int64_t ticket) const {
  const auto number = static_cast<uint64_t>(ticket);
  if (number >= events_.size() || !waiting_[number]) {
    return Error(Code::kInvalidProblem, "no copy has the ticket %lld, or it was waited for",
                 static_cast<long long>(ticket));
  }
  return events_[number];
}

}  // namespace

Result<std::unique_ptr<swap::Swapper>> MakeSwapper(int ordinal) {
  OOC_ASSIGN(PrimaryContext context, PrimaryContext::Retain(ordinal));
  auto made = std::make_unique<CudaSwapper>(std::move(context));
  OOC_TRY(made->Prepare());
  return std::unique_ptr<swap::Swapper>(std::move(made));
}

}  // namespace oocdnn::cuda
