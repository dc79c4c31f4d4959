#include "spill/look.h"

#include "spill/core.h"
#include "spill/ledger.h"
#include "spill/process.h"
#include "spill/sizes.h"

/* What oocdnn allocates or frees meanwhile would be taken for others'. */
cudaError_t ooc_look(const OocRuntime* real, int device, size_t* free, size_t* total) {
  OocLook look = ooc_ledger_look(device);
  if (look.first) look.process = ooc_process_bytes(real, device);
  look.own = ooc_core_bytes(device);
  const cudaError_t status = real->cudaMemGetInfo(free, total);
  if (status != cudaSuccess) return status;
  look.used = ooc_less(*total, *free);
  if (look.own == ooc_core_bytes(device)) ooc_ledger_see(device, &look);
  return cudaSuccess;
}
