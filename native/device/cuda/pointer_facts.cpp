#include "device/cuda/pointer_facts.hpp"

namespace oocdnn::cuda {
namespace {

Result<PointerFacts> FactsAt(const Driver& driver, uint64_t address) {
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

}  // namespace

Location LocationOf(const PointerFacts& facts, uint64_t address, int ordinal) {
  if (!facts.known()) return {Tier::kPageable};
  Location location;
  location.tier = facts.host()               ? Tier::kPinned
                  : facts.ordinal == ordinal ? Tier::kDevice
                                             : Tier::kPeer;
  if (!facts.host()) location.device = facts.ordinal;
  location.shift = static_cast<int64_t>(facts.device - address);
  return location;
}

// Between two pinned ends there may be memory that is not pinned. Tensors in a GPU's memory may be
// made of several allocations.
Result<PointerFacts> FactsOf(const Driver& driver, uint64_t address, uint64_t count) {
  OOC_ASSIGN(const PointerFacts first, FactsAt(driver, address));
  if (!first.known()) return PointerFacts{};
  if (first.bytes != 0 && first.device - first.begin + count <= first.bytes) return first;
  if (first.host() && first.bytes != 0) return PointerFacts{};
  OOC_ASSIGN(const PointerFacts last, FactsAt(driver, address + count - 1));
  return last.known() ? first : PointerFacts{};
}

}  // namespace oocdnn::cuda
