// The functions of copies between a GPU and host memory.
#include "testing/fuzz_capi/session.hpp"

namespace oocdnn::fuzz_capi {

void CallSwap(Random* random) {
  oocdnn_swapper* swapper = nullptr;
  Now("oocdnn_create_swapper");
  const int32_t ordinal = random->Chance(50) ? random->Int() : 0;
  const bool none = random->Chance(20);
  Answered(oocdnn_create_swapper(ordinal, none ? nullptr : &swapper));
  uint64_t slab = 0;
  int64_t ticket = 0;
  int32_t done = 0;
  Now("oocdnn_allocate_slab");
  Answered(oocdnn_allocate_slab(swapper, random->Between(-1, 4096),
                                random->Chance(10) ? nullptr : &slab));
  Now("oocdnn_borrow_slab");
  Answered(oocdnn_borrow_slab(swapper, random->Int(), random->Between(-1, 4096),
                              random->Chance(10) ? nullptr : &slab));
  Now("oocdnn_borrow_link");
  Answered(oocdnn_borrow_link(swapper, random->Int()));
  Now("oocdnn_start_copy");
  Answered(oocdnn_start_copy(swapper, random->Int(), 0, 0, slab, random->Integer(), &ticket));
  Now("oocdnn_copy_done");
  Answered(oocdnn_copy_done(swapper, random->Integer(), random->Chance(10) ? nullptr : &done));
  Now("oocdnn_wait_for_copy");
  Answered(oocdnn_wait_for_copy(swapper, random->Integer(), 0));
  Now("oocdnn_free_slab");
  Answered(oocdnn_free_slab(swapper, slab));
  Now("oocdnn_destroy_swapper");
  oocdnn_destroy_swapper(swapper);
}

}  // namespace oocdnn::fuzz_capi
