#include "device/cuda/pointer_facts.hpp"

namespace oocdnn::cuda {

Result<PointerFacts> FactsOf(const Driver& driver, uint64_t address) {
  PointerFacts facts;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&facts.type,   &facts.managed, &facts.ordinal,
                    &facts.device, &facts.begin,   &facts.bytes};
  OOC_CUDA(driver, cuPointerGetAttributes, 6, attributes, values, address);
  return facts;
}

}  // namespace oocdnn::cuda
