// The C functions of copies between a device and host memory.
#include <memory>
#include <mutex>
#include <utility>

#include "backends/backends.hpp"
#include "backends/borrowed.hpp"
#include "base/process_lock.hpp"
#include "capi/guard.hpp"
#include "capi/oocdnn.h"
#include "swap/swapper.hpp"

struct oocdnn_swapper {
  explicit oocdnn_swapper(std::unique_ptr<oocdnn::swap::Swapper> made) : swapper(std::move(made)) {}

  oocdnn::ProcessLock turn;
  std::unique_ptr<oocdnn::swap::Swapper> swapper;
};

namespace {

using namespace oocdnn;  // NOLINT: this file is a C face of that namespace

static_assert(static_cast<int>(swap::Way::kOut) == OOCDNN_WAY_OUT);
static_assert(static_cast<int>(swap::Way::kIn) == OOCDNN_WAY_IN);

void* PointerTo(uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// `body` with the swapper when it has no other call.
template <class Body>
oocdnn_status InTurn(oocdnn_swapper* swapper, const Body& body) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(swapper, "the swapper"));
    const std::lock_guard turn(swapper->turn);
    return body(*swapper->swapper);
  });
}

Status NeedSome(int64_t bytes, const char* what) {
  OOC_TRY(NeedBytes(bytes, what));
  if (bytes > 0) return {};
  return Error(Code::kInvalidProblem, "%s are 0; 1 is the least", what);
}

// `slab` receives what `make` gives.
template <class Make>
oocdnn_status MakeSlab(oocdnn_swapper* swapper, int64_t bytes, uint64_t* slab, const Make& make) {
  return InTurn(swapper, [&](swap::Swapper& own) -> Status {
    OOC_TRY(Need(slab, "the place for the slab"));
    OOC_TRY(NeedSome(bytes, "the bytes of a slab"));
    OOC_ASSIGN(void* const made, make(own));
    *slab = reinterpret_cast<uint64_t>(made);
    return {};
  });
}

}  // namespace

oocdnn_status oocdnn_create_swapper(int32_t ordinal, oocdnn_swapper** swapper) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(swapper, "the place for the swapper"));
    OOC_ASSIGN(auto made, MakeSwapper(ordinal));
    *swapper = std::make_unique<oocdnn_swapper>(std::move(made)).release();
    return {};
  });
}

void oocdnn_destroy_swapper(oocdnn_swapper* swapper) {
  static_cast<void>(Guard([&]() -> Status {
    delete swapper;
    return {};
  }));
}

oocdnn_status oocdnn_allocate_slab(oocdnn_swapper* swapper, int64_t bytes, uint64_t* slab) {
  return MakeSlab(swapper, bytes, slab,
                  [=](swap::Swapper& own) { return own.AllocateSlab(bytes); });
}

oocdnn_status oocdnn_borrow_slab(oocdnn_swapper* swapper, int32_t ordinal, int64_t bytes,
                                 uint64_t* slab) {
  return MakeSlab(swapper, bytes, slab,
                  [=](swap::Swapper& own) { return own.BorrowSlab(ordinal, bytes); });
}

oocdnn_status oocdnn_borrow_link(oocdnn_swapper* swapper, int32_t ordinal) {
  return InTurn(swapper, [&](swap::Swapper& own) -> Status {
    OOC_ASSIGN(const int64_t piece_bytes, BorrowedPiece());
    return own.BorrowLink(ordinal, piece_bytes);
  });
}

oocdnn_status oocdnn_free_slab(oocdnn_swapper* swapper, uint64_t slab) {
  return InTurn(swapper, [&](swap::Swapper& own) { return own.FreeSlab(PointerTo(slab)); });
}

oocdnn_status oocdnn_start_copy(oocdnn_swapper* swapper, int32_t way, uint64_t stream,
                                uint64_t device_address, uint64_t slab, int64_t bytes,
                                int64_t* ticket) {
  return InTurn(swapper, [&](swap::Swapper& own) -> Status {
    OOC_TRY(Need(ticket, "the place for the ticket"));
    OOC_TRY(NeedSome(bytes, "the bytes of a copy"));
    if (way != OOCDNN_WAY_OUT && way != OOCDNN_WAY_IN) {
      return Error(Code::kInvalidProblem, "there is no direction %d of a copy; 0 and 1 are", way);
    }
    OOC_ASSIGN(*ticket, own.Start(static_cast<swap::Way>(way), PointerTo(stream), device_address,
                                  PointerTo(slab), bytes));
    return {};
  });
}

oocdnn_status oocdnn_wait_for_copy(oocdnn_swapper* swapper, int64_t ticket, uint64_t stream) {
  return InTurn(swapper, [&](swap::Swapper& own) { return own.Wait(ticket, PointerTo(stream)); });
}

oocdnn_status oocdnn_copy_done(oocdnn_swapper* swapper, int64_t ticket, int32_t* done) {
  return InTurn(swapper, [&](swap::Swapper& own) -> Status {
    OOC_TRY(Need(done, "the place for the answer"));
    OOC_ASSIGN(const bool ended, own.Done(ticket));
    *done = ended ? 1 : 0;
    return {};
  });
}
