#include "device/cuda/swapper.hpp"

#include <array>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/cuda/host_memory.hpp"
#include "device/cuda/primary_context.hpp"

namespace oocdnn::cuda {
namespace {

struct Slab {
  int64_t bytes = 0;
  const PrimaryContext* lender = nullptr;  // the GPU that has it; null: it is host memory
};

// A direction: its copies run one after the other.
struct Lane {
  CUstream stream = nullptr;
  CUevent reached = nullptr;  // by the stream of the caller, where a copy begins
};

class CudaSwapper final : public swap::Swapper {
 public:
  explicit CudaSwapper(PrimaryContext context) : context_(std::move(context)) {}
  ~CudaSwapper() override;

  Status Prepare();
  Result<void*> AllocateSlab(int64_t bytes) override;
  Result<void*> BorrowSlab(int ordinal, int64_t bytes) override;
  Status FreeSlab(void* slab) override;
  Result<int64_t> Start(swap::Way way, swap::Stream stream, swap::Address device, void* slab,
                        int64_t bytes) override;
  Status Wait(int64_t ticket, swap::Stream stream) override;
  Result<bool> Done(int64_t ticket) override;

 private:
  [[nodiscard]] const Driver& driver() const { return context_.driver(); }
  Status Finish();
  // A GPU whose memory this one reaches from here on.
  Result<const PrimaryContext*> LenderOf(int ordinal);
  // Its copies have ended.
  void Free(void* address, const Slab& slab) const;
  // The number of an event that no copy uses, made where there is none. It is the next copy's
  // ticket.
  Result<size_t> FreeEvent();
  Result<CUevent> EventOf(int64_t ticket) const;

  const PrimaryContext context_;
  std::array<Lane, 2> lanes_;              // by Way
  std::vector<CUevent> events_;            // at the end of a copy
  std::vector<bool> waiting_;              // for each of them: its copy has not been waited for
  std::vector<size_t> free_;               // the other ones
  std::map<int, PrimaryContext> lenders_;  // by ordinal
  std::unordered_map<void*, Slab> slabs_;
};

// Errors are ignored: the process may be ending, and nobody is left to handle them.
CudaSwapper::~CudaSwapper() {
  const Current current(context_);
  static_cast<void>(Finish());
  for (const auto& [address, slab] : slabs_) Free(address, slab);
  for (CUevent event : events_) driver().cuEventDestroy(event);
  for (const Lane& lane : lanes_) {
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
  for (const Lane& lane : lanes_) {
    if (lane.stream != nullptr) OOC_CUDA(driver(), cuStreamSynchronize, lane.stream);
  }
  return {};
}

Result<void*> CudaSwapper::AllocateSlab(int64_t bytes) {
  const Current current(context_);
  OOC_TRY(current.status());
  OOC_ASSIGN(void* const slab, AllocatePinned(driver(), bytes));
  slabs_.emplace(slab, Slab{bytes});
  return slab;
}

Result<const PrimaryContext*> CudaSwapper::LenderOf(int ordinal) {
  const auto known = lenders_.find(ordinal);
  if (known != lenders_.end()) return &known->second;
  if (ordinal == context_.ordinal()) {
    return Error(Code::kInvalidProblem, "GPU %d borrows from other GPUs, and not from itself",
                 ordinal);
  }
  OOC_ASSIGN(PrimaryContext lender, PrimaryContext::Retain(ordinal));
  int reaches = 0;
  OOC_CUDA(driver(), cuDeviceCanAccessPeer, &reaches, context_.device(), lender.device());
  if (reaches == 0) {
    return Error(Code::kUnsupported, "GPU %d does not reach the memory of GPU %d",
                 context_.ordinal(), ordinal);
  }
  const Current current(context_);
  OOC_TRY(current.status());
  const CUresult result = driver().cuCtxEnablePeerAccess(lender.handle(), 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
    OOC_TRY(driver().Check(result, "cuCtxEnablePeerAccess"));
  }
  return &lenders_.emplace(ordinal, std::move(lender)).first->second;
}

Result<void*> CudaSwapper::BorrowSlab(int ordinal, int64_t bytes) {
  OOC_ASSIGN(const PrimaryContext* const lender, LenderOf(ordinal));
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
  slabs_.emplace(slab, Slab{bytes, lender});
  return slab;
}

void CudaSwapper::Free(void* address, const Slab& slab) const {
  const Current current(slab.lender == nullptr ? context_ : *slab.lender);
  if (slab.lender == nullptr) {
    FreePinned(driver(), address, slab.bytes);
  } else {
    driver().cuMemFree(Address(address));
  }
}

Status CudaSwapper::FreeSlab(void* slab) {
  const auto found = slabs_.find(slab);
  if (found == slabs_.end()) return Error(Code::kInvalidProblem, "%p is no slab", slab);
  {
    const Current current(context_);
    OOC_TRY(current.status());
    OOC_TRY(Finish());
  }
  Free(slab, found->second);
  slabs_.erase(found);
  return {};
}

Result<int64_t> CudaSwapper::Start(swap::Way way, swap::Stream stream, swap::Address device,
                                   void* slab, int64_t bytes) {
  const auto found = slabs_.find(slab);
  if (found == slabs_.end() || bytes > found->second.bytes) {
    return Error(Code::kInvalidProblem, "a copy of %lld bytes needs a slab of as many; %p has %lld",
                 static_cast<long long>(bytes), slab,
                 found == slabs_.end() ? 0LL : static_cast<long long>(found->second.bytes));
  }
  const Current current(context_);
  OOC_TRY(current.status());
  OOC_ASSIGN(const size_t number, FreeEvent());
  const Lane& lane = lanes_[static_cast<size_t>(way)];
  OOC_CUDA(driver(), cuEventRecord, lane.reached, static_cast<CUstream>(stream));
  OOC_CUDA(driver(), cuStreamWaitEvent, lane.stream, lane.reached, 0);
  const bool out = way == swap::Way::kOut;
  const CUdeviceptr host = Address(slab), to = out ? host : device, from = out ? device : host;
  OOC_CUDA(driver(), cuMemcpyAsync, to, from, static_cast<size_t>(bytes), lane.stream);
  OOC_CUDA(driver(), cuEventRecord, events_[number], lane.stream);
  free_.pop_back();
  waiting_[number] = true;
  return static_cast<int64_t>(number);
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
