// A libcuda.so.1 without a GPU: device memory is host memory, and kernels run on the host from the
// very source that nvcc compiles. So everything but the hardware is tested anywhere. It checks what
// the driver would: pitches, launch limits, contexts, pointers.
//
// Streams are as late as they may be: work is done when somebody waits for it, and no work of
// another stream before that but what was waited for. So a wait that is missing shows.
//
// It is libnvrtc.so.13 too, by a link, for builds without nvcc; what that compiles to is a word.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "abi/cuda_driver.h"
#include "abi/nvrtc.h"
#include "device/cuda/kernels.cu"
#include "fake_work.hpp"

namespace {

using KernelFunction = void (*)(const void*, unsigned, unsigned, unsigned, void*);

// For which architecture the kernels were compiled: OOC_FAKE_KERNELS, or 8.0.
int Architecture() {
  const char* const asked = std::getenv("OOC_FAKE_KERNELS");
  return asked != nullptr ? std::atoi(asked) : 80;
}

constexpr unsigned kByArchitecture = 0;  // threads of some kernels

struct Entry {
  const char* name;
  KernelFunction run;
  unsigned threads;
  size_t argument_bytes;

  [[nodiscard]] unsigned MostThreads() const {
    if (threads != kByArchitecture) return threads;
    return Architecture() == 90 ? oocdnn::cuda::Fp32x3Wgmma::kThreads
                                : oocdnn::cuda::Fp32x3Mma::kThreads;
  }
};
constexpr Entry kEntries[] = {
    {"ooc_rows", ooc_rows, 1024, sizeof(oocdnn::cuda::RowsArgs)},
    {"ooc_transpose", ooc_transpose, 1024, sizeof(oocdnn::cuda::TransposeArgs)},
    {"ooc_zero", ooc_zero, 1024, sizeof(oocdnn::cuda::ZeroArgs)},
    {"ooc_finish", ooc_finish, 256, sizeof(oocdnn::cuda::FinishKernelArgs)},
    {"ooc_pool_forward", ooc_pool_forward, 256, sizeof(oocdnn::cuda::PoolForwardKernelArgs)},
    {"ooc_dense", ooc_dense, 256, sizeof(oocdnn::cuda::DenseArgs)},
    {"ooc_planes", ooc_planes, 256, sizeof(oocdnn::cuda::DenseArgs)},
    {"ooc_pool_backward", ooc_pool_backward, 256, sizeof(oocdnn::cuda::PoolBackwardKernelArgs)},
    {"ooc_normalize", ooc_normalize, 256, sizeof(oocdnn::cuda::NormKernelArgs)},
    {"ooc_sum", ooc_sum, 1024, sizeof(oocdnn::cuda::NormKernelArgs)},
    {"ooc_direct_gather", ooc_direct_gather, 256, sizeof(oocdnn::cuda::DirectArgs)},
    {"ooc_direct_filter", ooc_direct_filter, 256, sizeof(oocdnn::cuda::DirectArgs)},
    {"ooc_direct_elements", ooc_direct_elements, 256, sizeof(oocdnn::cuda::DirectArgs)},
    {"ooc_depthwise", ooc_depthwise, 256, sizeof(oocdnn::cuda::DepthwiseArgs)},
    {"ooc_depthwise_filter", ooc_depthwise_filter, 256, sizeof(oocdnn::cuda::DepthwiseFilterArgs)},
    {"ooc_depthwise_add", ooc_depthwise_add, 256, sizeof(oocdnn::cuda::DepthwiseFilterArgs)},
    {"ooc_fp32x3_gather", ooc_fp32x3_gather, kByArchitecture, sizeof(oocdnn::cuda::Fp32x3Args)},
    {"ooc_fp32x3_gather_narrow", ooc_fp32x3_gather_narrow, kByArchitecture,
     sizeof(oocdnn::cuda::Fp32x3Args)},
    {"ooc_fp32x3_filter", ooc_fp32x3_filter, kByArchitecture, sizeof(oocdnn::cuda::Fp32x3Args)},
    {"ooc_fp32x3_filter_narrow", ooc_fp32x3_filter_narrow, kByArchitecture,
     sizeof(oocdnn::cuda::Fp32x3Args)},
    {"ooc_fp32x3_filter_transposed", ooc_fp32x3_filter_transposed, kByArchitecture,
     sizeof(oocdnn::cuda::Fp32x3Args)},
    {"ooc_fp32x3_add", ooc_fp32x3_add, 256, sizeof(oocdnn::cuda::Fp32x3AddArgs)},
    {"ooc_bias_parts", ooc_bias_parts, 128, sizeof(oocdnn::cuda::BiasArgs)},
    {"ooc_bias_chain", ooc_bias_chain, 128, sizeof(oocdnn::cuda::BiasArgs)},
};

struct Range {
  size_t bytes;
  unsigned type;
  CUcontext context = nullptr;  // of device memory
};

std::mutex mutex;
std::map<CUdeviceptr, Range>& Ranges() {
  static auto* const ranges = new std::map<CUdeviceptr, Range>;
  return *ranges;
}

// Bytes of shared memory of a block: usually, where a kernel asks for more, and by kernel.
constexpr int kUsualShared = 49152, kMostShared = 232448;
std::map<CUfunction, int>& SharedBytes() {
  static auto* const bytes = new std::map<CUfunction, int>;
  return *bytes;
}

size_t held = 0, peak = 0;      // bytes of device memory, now and at most since somebody asked
int questions = 0;              // about pointers
size_t registrable = SIZE_MAX;  // bytes, at once
size_t lendable = SIZE_MAX;     // bytes that the second GPU has
constexpr int kGpus = 3;
size_t crossed[kGpus] = {};  // bytes that copies of each GPU's streams moved from or to the host
int slow[kGpus] = {};        // nanoseconds of each such byte, beyond the copy's own time
int reaches = 1;             // whether a GPU reaches another one's memory
void (*registering)() = nullptr;

// The contexts of the GPUs. The second is there where a test asks for it, and so are all.
int contexts[kGpus] = {};
thread_local std::vector<CUcontext> pushed;
std::set<std::pair<CUcontext, CUcontext>> peers;  // the first one reaches the memory of the second
int Gpus() {
  const bool all = std::getenv("OOC_FAKE_THREE_GPUS") != nullptr;
  return all ? kGpus : std::getenv("OOC_FAKE_TWO_GPUS") != nullptr ? 2 : 1;
}
int OrdinalOf(CUcontext context) {
  return static_cast<int>(reinterpret_cast<int*>(context) - contexts);
}

const Range* Find(CUdeviceptr pointer, CUdeviceptr* begin) {
  auto next = Ranges().upper_bound(pointer);
  if (next == Ranges().begin()) return nullptr;
  --next;
  *begin = next->first;
  return pointer < next->first + next->second.bytes ? &next->second : nullptr;
}

// True if the stream's context, of a default stream the current one, reaches the memory in [begin,
// begin + bytes).
bool Reachable(CUstream stream, CUdeviceptr begin, size_t bytes) {
  const CUcontext context = Streams().contains(stream) ? stream->context : pushed.back();
  const std::lock_guard lock(mutex);
  CUdeviceptr base = 0;
  const Range* const range = Find(begin, &base);
  if (range == nullptr || begin + bytes > base + range->bytes) return false;
  const bool own = range->context == nullptr || range->context == context;
  return own || peers.contains({context, range->context});
}

// Enqueues a copy, which is counted where one side is host memory.
void EnqueueCopy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                 std::function<void()> copy) {
  bool crosses = false;
  {
    const std::lock_guard lock(mutex);
    for (const CUdeviceptr side : {to, from}) {
      CUdeviceptr base = 0;
      const Range* const range = Find(side, &base);
      crosses = crosses || (range != nullptr && range->context == nullptr);
    }
  }
  Enqueue(stream, [=, copy = std::move(copy)] {
    copy();
    if (!crosses || !Streams().contains(stream)) return;
    const int gpu = OrdinalOf(stream->context);
    crossed[gpu] += bytes;
    passed += std::chrono::nanoseconds(slow[gpu] * static_cast<int64_t>(bytes));
  });
}

void* At(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

}  // namespace

#define FAKE(name) extern "C" __attribute__((visibility("default"))) CUresult name
#define IN_CONTEXT() \
  if (pushed.empty()) return 201

FAKE(cuInit)(unsigned) { return 0; }
FAKE(cuDriverGetVersion)(int* version) {
  *version = 12000;
  return 0;
}
FAKE(cuGetErrorName)(CUresult, const char** text) {
  *text = "CUDA_ERROR_FAKE";
  return 0;
}
FAKE(cuGetErrorString)(CUresult, const char** text) {
  *text = "the fake driver says no";
  return 0;
}
FAKE(cuDeviceGet)(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < Gpus() ? 0 : 101;
}
FAKE(cuDeviceGetCount)(int* count) {
  *count = Gpus();
  return 0;
}
FAKE(cuDeviceGetName)(char* name, int length, CUdevice) {
  std::strncpy(name, "fake GPU", static_cast<size_t>(length));
  return 0;
}
FAKE(cuDeviceTotalMem_v2)(size_t* bytes, CUdevice) {
  *bytes = size_t{8} << 30;
  return 0;
}
FAKE(cuDeviceGetAttribute)(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: *value = 0x7fffffff; return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 2; return 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; return 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; return 0;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = kMostShared; return 0;
  }
  return 1;
}
FAKE(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(&contexts[device]);
  return 0;
}
FAKE(cuDevicePrimaryCtxRelease_v2)(CUdevice) { return 0; }
FAKE(cuDeviceCanAccessPeer)(int* can, CUdevice device, CUdevice peer) {
  *can = device != peer ? reaches : 0;
  return 0;
}
FAKE(cuCtxEnablePeerAccess)(CUcontext peer, unsigned) {
  IN_CONTEXT();
  const std::lock_guard lock(mutex);
  const bool added = peers.emplace(pushed.back(), peer).second;
  return added ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
// No functions of the driver's: whether a GPU reaches another one's memory, and the bytes that the
// second GPU has.
FAKE(fake_reaches)(int whether) { return reaches = whether, 0; }
FAKE(fake_lendable)(size_t bytes) { return lendable = bytes, 0; }
// No functions of the driver's: the bytes that a GPU's streams have copied from or to host memory
// since it was last asked, and the nanoseconds that each such byte takes beyond the copy's own
// time.
FAKE(fake_crossed)(int gpu, size_t* bytes) {
  const std::lock_guard lock(work_mutex);
  *bytes = std::exchange(crossed[gpu], 0);
  return 0;
}
FAKE(fake_slow)(int gpu, int nanoseconds) {
  const std::lock_guard lock(work_mutex);
  return slow[gpu] = nanoseconds, 0;
}
FAKE(cuCtxPushCurrent_v2)(CUcontext context) {
  pushed.push_back(context);
  return 0;
}
FAKE(cuCtxPopCurrent_v2)(CUcontext*) {
  IN_CONTEXT();
  pushed.pop_back();
  return 0;
}
FAKE(cuCtxGetCurrent)(CUcontext* context) {
  *context = pushed.empty() ? nullptr : pushed.back();
  return 0;
}
FAKE(cuCtxGetStreamPriorityRange)(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return 0;
}
FAKE(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode*) { return 0; }
FAKE(cuModuleLoadData)(CUmodule* module, const void* image) {
  *module = reinterpret_cast<CUmodule>(contexts);
  return image == nullptr ? 1 : 0;
}
FAKE(cuModuleUnload)(CUmodule) { return 0; }
FAKE(cuFuncGetAttribute)(int* value, CUfunction_attribute attribute, CUfunction function) {
  const auto& entry = *reinterpret_cast<const Entry*>(function);
  const bool threads = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
  *value = threads ? static_cast<int>(entry.MostThreads()) : Architecture();
  return 0;
}
FAKE(cuFuncSetAttribute)(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > kMostShared) return 1;
  const std::lock_guard lock(mutex);
  SharedBytes()[function] = value;
  return 0;
}
FAKE(cuModuleGetFunction)(CUfunction* function, CUmodule, const char* name) {
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) != 0) continue;
    *function = reinterpret_cast<CUfunction>(const_cast<Entry*>(&entry));
    return 0;
  }
  return 500;
}
FAKE(cuLaunchKernel)(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads,
                     unsigned by, unsigned bz, unsigned shared, CUstream stream, void** parameters,
                     void**) {
  IN_CONTEXT();
  const auto& entry = *reinterpret_cast<const Entry*>(function);
  if (Streams().contains(stream) && stream->context != pushed.back()) return 400;
  if (x == 0 || x > 0x7fffffffu || y * z * by * bz != 1) return 1;
  if (threads == 0 || threads > entry.MostThreads()) return 1;
  {
    const std::lock_guard lock(mutex);
    const auto found = SharedBytes().find(function);
    const int most = found == SharedBytes().end() ? kUsualShared : found->second;
    if (shared > static_cast<unsigned>(most)) return 1;
  }
  const auto* const first = static_cast<const unsigned char*>(parameters[0]);
  std::vector<unsigned char> arguments(first, first + entry.argument_bytes);
  Enqueue(stream, [&entry, x, threads, shared, arguments = std::move(arguments)] {
    std::vector<unsigned char> memory(shared + 16, 0xcd);
    for (unsigned block = 0; block < x; ++block) {
      entry.run(arguments.data(), block, x, threads, memory.data());
    }
  });
  return 0;
}
FAKE(cuMemGetInfo_v2)(size_t* free, size_t* total) {
  *total = size_t{8} << 30;
  *free = *total;
  const std::lock_guard lock(mutex);
  *free -= held;
  return 0;
}
// No function of the driver's: the most device memory that was taken since it was last asked.
FAKE(fake_peak_bytes)(size_t* bytes) {
  const std::lock_guard lock(mutex);
  *bytes = std::exchange(peak, held);
  return 0;
}
FAKE(cuMemAlloc_v2)(CUdeviceptr* pointer, size_t bytes) {
  IN_CONTEXT();
  if (bytes > size_t{8} << 30) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUcontext context = pushed.back();
  if (context == reinterpret_cast<CUcontext>(&contexts[1]) && bytes > lendable) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  const std::lock_guard lock(mutex);
  Ranges()[*pointer] = {bytes, CU_MEMORYTYPE_DEVICE, context};
  held += bytes;
  peak = std::max(peak, held);
  return 0;
}
FAKE(cuMemFree_v2)(CUdeviceptr pointer) {
  IN_CONTEXT();
  WorkAll();
  const std::lock_guard lock(mutex);
  const auto range = Ranges().find(pointer);
  if (range == Ranges().end()) return 1;
  held -= range->second.bytes;
  Ranges().erase(range);
  std::free(At(pointer));
  return 0;
}
FAKE(cuMemHostRegister_v2)(void* memory, size_t bytes, unsigned) {
  IN_CONTEXT();
  if (registering != nullptr) registering();
  const auto begin = reinterpret_cast<CUdeviceptr>(memory);
  const std::lock_guard lock(mutex);
  if (bytes > registrable) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr base = 0;
  const auto next = Ranges().lower_bound(begin);
  const bool after = next != Ranges().end() && next->first < begin + bytes;
  if (after || Find(begin, &base) != nullptr) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  Ranges()[begin] = {bytes, CU_MEMORYTYPE_HOST};
  return 0;
}
// No function of the driver's: how many pieces of host memory are registered, the most bytes of one
// from now on, and what is called whenever one is to be.
FAKE(fake_registered)() {
  const std::lock_guard lock(mutex);
  int count = 0;
  for (const auto& [begin, range] : Ranges()) count += range.type == CU_MEMORYTYPE_HOST;
  return count;
}
FAKE(fake_registrable)(size_t bytes) { return registrable = bytes, 0; }
FAKE(fake_registering)(void (*function)()) { return registering = function, 0; }
FAKE(cuMemHostUnregister)(void* memory) {
  IN_CONTEXT();
  WorkAll();
  const std::lock_guard lock(mutex);
  return Ranges().erase(reinterpret_cast<CUdeviceptr>(memory)) == 1 ? 0 : 1;
}
FAKE(cuMemcpyAsync)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  IN_CONTEXT();
  if (!Reachable(stream, to, bytes) || !Reachable(stream, from, bytes)) return 1;
  EnqueueCopy(stream, to, from, bytes, [=] { std::memcpy(At(to), At(from), bytes); });
  return 0;
}
FAKE(cuMemcpy3DAsync_v2)(const CUDA_MEMCPY3D* c, CUstream stream) {
  IN_CONTEXT();
  if (c->srcMemoryType != CU_MEMORYTYPE_UNIFIED || c->dstMemoryType != CU_MEMORYTYPE_UNIFIED) {
    return 1;
  }
  constexpr size_t kMostPitch = 0x7fffffff;
  if (c->srcPitch < c->WidthInBytes || c->dstPitch < c->WidthInBytes || c->srcPitch > kMostPitch ||
      c->dstPitch > kMostPitch || c->WidthInBytes * c->Height * c->Depth == 0) {
    return 1;
  }
  if (c->Depth > 1 && (c->srcHeight < c->Height || c->dstHeight < c->Height)) return 1;
  for (size_t z = 0; z < c->Depth; ++z) {
    for (size_t y = 0; y < c->Height; ++y) {
      const CUdeviceptr from = c->srcDevice + (z * c->srcHeight + y) * c->srcPitch;
      const CUdeviceptr to = c->dstDevice + (z * c->dstHeight + y) * c->dstPitch;
      if (!Reachable(stream, from, c->WidthInBytes) || !Reachable(stream, to, c->WidthInBytes)) {
        return 1;
      }
    }
  }
  const size_t bytes = c->WidthInBytes * c->Height * c->Depth;
  EnqueueCopy(stream, c->dstDevice, c->srcDevice, bytes, [copy = *c] {
    for (size_t z = 0; z < copy.Depth; ++z) {
      for (size_t y = 0; y < copy.Height; ++y) {
        std::memcpy(At(copy.dstDevice + (z * copy.dstHeight + y) * copy.dstPitch),
                    At(copy.srcDevice + (z * copy.srcHeight + y) * copy.srcPitch),
                    copy.WidthInBytes);
      }
    }
  });
  return 0;
}
FAKE(cuMemsetD8Async)(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream) {
  IN_CONTEXT();
  if (!Reachable(stream, to, bytes)) return 1;
  Enqueue(stream, [=] { std::memset(At(to), byte, bytes); });
  return 0;
}
// No function of the driver's: how many times it was asked about a pointer.
FAKE(fake_questions)() {
  const std::lock_guard lock(mutex);
  return questions;
}
FAKE(cuPointerGetAttributes)(unsigned count, CUpointer_attribute* attributes, void** data,
                             CUdeviceptr pointer) {
  const std::lock_guard lock(mutex);
  ++questions;
  CUdeviceptr begin = 0;
  const Range* const range = Find(pointer, &begin);
  const bool none = range == nullptr;
  for (unsigned i = 0; i < count; ++i) {
    const auto put = [&](auto value) { std::memcpy(data[i], &value, sizeof value); };
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: put(none ? 0u : range->type); break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: put(0u); break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: put(none ? -2 : 0); break;
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: put(none ? CUdeviceptr{0} : pointer); break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: put(begin); break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE: put(none ? size_t{0} : range->bytes); break;
    }
  }
  return 0;
}
FAKE(cuStreamCreateWithPriority)(CUstream* stream, unsigned, int priority) {
  IN_CONTEXT();
  *stream = new CUstream_st{priority, pushed.back(), {}};
  const std::lock_guard lock(work_mutex);
  Streams().insert(*stream);
  return 0;
}
FAKE(cuStreamDestroy_v2)(CUstream stream) {
  Work(stream, nullptr);
  const std::lock_guard lock(work_mutex);
  Streams().erase(stream);
  delete stream;
  return 0;
}
FAKE(cuStreamGetCtx)(CUstream stream, CUcontext* context) {
  *context = stream->context;
  return 0;
}
FAKE(cuStreamSynchronize)(CUstream stream) {
  IN_CONTEXT();
  Work(stream, nullptr);
  return 0;
}
// Set by tests: every stream is being captured. Read by them: how often a time stamp was asked for.
extern "C" {
__attribute__((visibility("default"))) int ooc_fake_capturing = 0, ooc_fake_time_stamps = 0;
}

FAKE(cuStreamIsCapturing)(CUstream, CUstreamCaptureStatus* status) {
  IN_CONTEXT();
  *status =
      ooc_fake_capturing != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return 0;
}
FAKE(cuStreamWaitEvent)(CUstream stream, CUevent event, unsigned) {
  IN_CONTEXT();
  const std::lock_guard lock(work_mutex);
  Enqueue(stream, [mark = event->mark] { WaitFor(mark); });
  return 0;
}
FAKE(cuEventCreate)(CUevent* event, unsigned flags) {
  IN_CONTEXT();
  *event = new CUevent_st{(flags & CU_EVENT_DISABLE_TIMING) == 0, pushed.back(), nullptr};
  return 0;
}
FAKE(cuEventDestroy_v2)(CUevent event) {
  delete event;
  return 0;
}
FAKE(cuEventRecord)(CUevent event, CUstream stream) {
  IN_CONTEXT();
  if (event->timed) ++ooc_fake_time_stamps;
  const std::lock_guard lock(work_mutex);
  if (Streams().count(stream) == 1 && stream->context != event->context) return 400;
  event->mark = std::make_shared<Mark>();
  event->mark->stream = stream;
  Enqueue(stream, [mark = event->mark] {
    mark->at = Now();
    mark->reached = true;
  });
  return 0;
}
FAKE(cuEventQuery)(CUevent event) {
  const std::lock_guard lock(work_mutex);
  return event->mark == nullptr || event->mark->reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
FAKE(cuEventSynchronize)(CUevent event) {
  const std::lock_guard lock(work_mutex);
  WaitFor(event->mark);
  return 0;
}
// No function of the driver's: what streams do next ends so much later.
FAKE(fake_pass)(int milliseconds) {
  const std::lock_guard lock(work_mutex);
  passed += std::chrono::milliseconds(milliseconds);
  return 0;
}
// No function of the driver's: how often streams of another GPU than before did their work.
FAKE(fake_turns)(int* count) {
  const std::lock_guard lock(work_mutex);
  *count = turns;
  return 0;
}
FAKE(cuEventElapsedTime)(float* milliseconds, CUevent begin, CUevent end) {
  const std::lock_guard lock(work_mutex);
  if (!begin->timed || !end->timed || begin->mark == nullptr || end->mark == nullptr) return 1;
  if (!begin->mark->reached || !end->mark->reached) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(end->mark->at - begin->mark->at).count();
  return 0;
}

FAKE(nvrtcVersion)(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
FAKE(nvrtcCreateProgram)(nvrtcProgram* program, const char* source, const char*, int headers,
                         const char* const*, const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(contexts);
  return source != nullptr && headers > 0 ? 0 : 1;
}
FAKE(nvrtcDestroyProgram)(nvrtcProgram*) { return 0; }
FAKE(nvrtcCompileProgram)(nvrtcProgram, int, const char* const*) { return 0; }
FAKE(nvrtcGetProgramLogSize)(nvrtcProgram, size_t* bytes) {
  *bytes = 0;
  return 0;
}
FAKE(nvrtcGetProgramLog)(nvrtcProgram, char*) { return 0; }
FAKE(nvrtcGetCUBINSize)(nvrtcProgram, size_t* bytes) {
  *bytes = 4;
  return 0;
}
FAKE(nvrtcGetCUBIN)(nvrtcProgram, char* cubin) {
  std::memcpy(cubin, "fake", 4);
  return 0;
}
