// The C functions of host memory that a device reaches at full speed.
#include "memory/host_memory.hpp"

#include <memory>

#include "capi/context.hpp"
#include "capi/guard.hpp"
#include "capi/oocdnn.h"

struct oocdnn_host_memory {
  std::unique_ptr<oocdnn::HostMemory> memory;
};

using namespace oocdnn;  // NOLINT: this file is a C face of that namespace

oocdnn_status oocdnn_allocate_host(oocdnn_context* context, int64_t bytes,
                                   oocdnn_host_memory** memory) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(memory, "the place for the memory"));
    OOC_TRY(NeedBytes(bytes, "the bytes of host memory"));
    auto made = std::make_unique<oocdnn_host_memory>();
    OOC_ASSIGN(made->memory, context->context->AllocateHost(bytes));
    *memory = made.release();
    return {};
  });
}

oocdnn_status oocdnn_pin(oocdnn_context* context, void* data, int64_t bytes,
                         oocdnn_host_memory** memory) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(data, "the memory to pin"));
    OOC_TRY(Need(memory, "the place for the memory"));
    OOC_TRY(NeedBytes(bytes, "the bytes of host memory"));
    auto made = std::make_unique<oocdnn_host_memory>();
    OOC_ASSIGN(made->memory, context->context->PinHost(data, bytes));
    *memory = made.release();
    return {};
  });
}

oocdnn_status oocdnn_auto_pin_bytes(oocdnn_context* context, int64_t* bytes) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(bytes, "the place for the bytes"));
    *bytes = context->context->AutoPinBytes();
    return {};
  });
}

void* oocdnn_host_data(const oocdnn_host_memory* memory) {
  return memory != nullptr ? memory->memory->data() : nullptr;
}

void oocdnn_unpin(oocdnn_host_memory* memory) {
  static_cast<void>(Guard([&]() -> Status {
    if (memory != nullptr) memory->memory->Unpin();
    return {};
  }));
}

void oocdnn_free_host(oocdnn_host_memory* memory) {
  static_cast<void>(Guard([&]() -> Status {
    delete memory;
    return {};
  }));
}
