#include "device/cuda/pointer_facts.hpp"

namespace oocdnn::cuda {

Result<PointerFacts> FactsOf(const Driver& driver, uint64_t address) {
  PointerFacts facts;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  void* values[] = {&facts.type, &facts.managed, &facts.ordinal, &facts.device};
  OOC_CUDA(driver, cuPointerGetAttributes, 4, attributes, values, address);
  return facts;
}

}  // namespace oocdnn::cuda
