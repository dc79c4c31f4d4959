// C functions for one Device at a time, for tests/gpu: memory, one stream, copies, engines,
// finishing. Any device serves; the CPU device runs the same scripts where there is no GPU.
#include <cstring>
#include <memory>
#include <string>

#include "device/cpu/cpu_device.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/nvrtc.hpp"
#include "testing/export.hpp"

namespace oocdnn {
namespace {

using testing::Answer;
using testing::CopyText;

struct Rig {
  std::unique_ptr<Device> device;
  Stream stream = nullptr;
};

// The structs that cross: plain, eight bytes per field.
struct RawView {
  void* data;
  int64_t dtype, stride[6];
};
struct RawLayout {
  int64_t dtype, shape[6], stride[6], bytes;
};
struct RawTransfer {
  RawView view;
  RawLayout layout;
  int64_t operand, origin[6], extent[6], valid_begin[6], valid_end[6], tile_begin[6], tile_end[6];
  void* tile;
  void* bounce;
  int64_t bounce_bytes;
};
struct RawOp {
  int64_t direction, n, g, k, c, in[3], filter[3], out[3], pad[3], stride[3], dilation[3];
  int64_t dtype, out_dtype, accumulates, math, workspace_limit, first_choice, may_compile;
};
struct RawFinish {
  void* out;
  RawLayout layout;
  const void *old, *residual, *bias, *scale;
  double alpha, beta, residual_alpha, parameter;
  int64_t operand, activation;
};

Dims DimsFrom(const int64_t (&from)[6]) {
  Dims dims;
  std::copy(from, from + 6, dims.begin());
  return dims;
}

Spatial SpatialFrom(const int64_t (&from)[3]) { return {from[0], from[1], from[2]}; }

TileLayout LayoutFrom(const RawLayout& from) {
  TileLayout layout;
  layout.dtype = static_cast<DType>(from.dtype);
  layout.shape = DimsFrom(from.shape);
  layout.stride = DimsFrom(from.stride);
  layout.bytes = from.bytes;
  return layout;
}

Transfer TransferFrom(const RawTransfer& from, const TileLayout& layout) {
  Transfer transfer;
  transfer.view = {from.view.data, static_cast<DType>(from.view.dtype), DimsFrom(from.view.stride)};
  transfer.operand = static_cast<Operand>(from.operand);
  transfer.box = {DimsFrom(from.origin), DimsFrom(from.extent), DimsFrom(from.valid_begin),
                  DimsFrom(from.valid_end)};
  transfer.tile_begin = DimsFrom(from.tile_begin);
  transfer.tile_end = DimsFrom(from.tile_end);
  transfer.tile = from.tile;
  transfer.layout = &layout;
  transfer.bounce = {from.bounce, from.bounce_bytes};
  return transfer;
}

TileOp OpFrom(const RawOp& from) {
  TileOp op;
  op.direction = static_cast<Direction>(from.direction);
  op.shape = {from.n,
              from.g,
              from.k,
              from.c,
              SpatialFrom(from.in),
              SpatialFrom(from.filter),
              SpatialFrom(from.out),
              SpatialFrom(from.pad),
              SpatialFrom(from.pad),
              SpatialFrom(from.stride),
              SpatialFrom(from.dilation)};
  op.dtype = static_cast<DType>(from.dtype);
  op.out_dtype = static_cast<DType>(from.out_dtype);
  op.accumulates = from.accumulates != 0;
  op.math = static_cast<Math>(from.math);
  if (from.workspace_limit > 0) op.workspace_limit = from.workspace_limit - 1;
  op.first_choice = from.first_choice != 0;
  op.may_compile = from.may_compile != 0;
  return op;
}

// "cpu", "cpu:direct", "cuda:0", "cuda:0:direct".
Result<std::unique_ptr<Device>> Open(const std::string& spec) {
  if (spec.rfind("cpu", 0) == 0) {
    CpuOptions options;
    if (spec.size() > 4) options.engine = spec.substr(4);
    return MakeCpuDevice(options);
  }
  CudaOptions options;
  options.ordinal = std::atoi(spec.c_str() + std::min<size_t>(spec.size(), 5));
  const size_t colon = spec.find(':', 5);
  if (colon != std::string::npos) options.engine = spec.substr(colon + 1);
  return MakeCudaDevice(options);
}

Result<std::unique_ptr<Rig>> MakeRig(const std::string& spec) {
  auto rig = std::make_unique<Rig>();
  OOC_ASSIGN(rig->device, Open(spec));
  OOC_ASSIGN(rig->stream, rig->device->CreateStream("fetch"));
  return rig;
}

}  // namespace

OOC_EXPORT int oocdnn_gpu_open(const char* spec, void** rig, char* text, int64_t capacity) {
  auto made = MakeRig(spec);
  if (!made.ok()) return Answer(made.status(), text, capacity);
  const Capabilities& has = made.value()->device->capabilities();
  std::string line = has.name + ": " + has.description + "; engines";
  for (const EngineInfo& info : made.value()->device->engines()) line += " " + info.name;
  CopyText(line, text, capacity);
  *rig = made.value().release();
  return 0;
}

OOC_EXPORT void oocdnn_gpu_close(Rig* rig) {
  rig->device->DestroyStream(rig->stream);
  delete rig;
}

OOC_EXPORT int64_t oocdnn_gpu_free_bytes(Rig* rig) {
  const auto free = rig->device->FreeBytes();
  return free.ok() ? free.value() : -1;
}

OOC_EXPORT int oocdnn_gpu_allocate(Rig* rig, int host, int64_t bytes, void** memory, char* text,
                                   int64_t capacity) {
  auto made = host != 0 ? rig->device->AllocateHost(bytes) : rig->device->Allocate(bytes);
  if (!made.ok()) return Answer(made.status(), text, capacity);
  *memory = made.value();
  return 0;
}

OOC_EXPORT void oocdnn_gpu_free(Rig* rig, int host, void* memory, int64_t bytes) {
  if (host != 0) {
    rig->device->FreeHost(memory, bytes);
  } else {
    rig->device->Free(memory, bytes);
  }
}

// verb: 0 fetch, 1 drain.
OOC_EXPORT int oocdnn_gpu_copy(Rig* rig, int verb, const RawTransfer* from, char* text,
                               int64_t capacity) {
  const TileLayout layout = LayoutFrom(from->layout);
  const Transfer transfer = TransferFrom(*from, layout);
  return Answer(verb == 0 ? rig->device->Fetch(rig->stream, transfer)
                          : rig->device->Drain(rig->stream, transfer),
                text, capacity);
}

OOC_EXPORT int oocdnn_gpu_move(Rig* rig, const RawLayout* layout_from, const void* from, void* to,
                               const int64_t* from_begin, const int64_t* to_begin,
                               const int64_t* extent, char* text, int64_t capacity) {
  const TileLayout layout = LayoutFrom(*layout_from);
  TileMove move;
  move.from = from;
  move.to = to;
  std::copy(from_begin, from_begin + 6, move.from_begin.begin());
  std::copy(to_begin, to_begin + 6, move.to_begin.begin());
  std::copy(extent, extent + 6, move.extent.begin());
  move.layout = &layout;
  return Answer(rig->device->Move(rig->stream, move), text, capacity);
}

OOC_EXPORT int oocdnn_gpu_fill(Rig* rig, void* buffer, int64_t bytes, int byte, char* text,
                               int64_t capacity) {
  return Answer(rig->device->Fill(rig->stream, buffer, bytes, byte), text, capacity);
}

OOC_EXPORT int oocdnn_gpu_finish(Rig* rig, const RawFinish* from, char* text, int64_t capacity) {
  const TileLayout layout = LayoutFrom(from->layout);
  FinishArgs args;
  args.out = from->out;
  args.operand = static_cast<Operand>(from->operand);
  args.layout = &layout;
  args.old = from->old;
  args.residual = from->residual;
  args.bias = from->bias;
  args.scale = from->scale;
  args.alpha = from->alpha;
  args.beta = from->beta;
  args.epilogue = {from->scale != nullptr,
                   from->bias != nullptr,
                   from->residual != nullptr,
                   from->residual_alpha,
                   static_cast<Activation>(from->activation),
                   from->parameter};
  return Answer(rig->device->Finish(rig->stream, args), text, capacity);
}

OOC_EXPORT int oocdnn_gpu_prepare(Rig* rig, int engine, const RawOp* from, void** executable,
                                  char* text, int64_t capacity) {
  auto made = rig->device->Prepare(engine, OpFrom(*from));
  if (!made.ok()) return Answer(made.status(), text, capacity);
  CopyText(made.value()->engine(), text, capacity);
  *executable = made.value().release();
  return 0;
}

OOC_EXPORT void oocdnn_gpu_layout(const Executable* executable, int operand, RawLayout* to) {
  const TileLayout& layout = executable->layout(static_cast<Operand>(operand));
  to->dtype = static_cast<int64_t>(layout.dtype);
  std::copy(layout.shape.begin(), layout.shape.end(), to->shape);
  std::copy(layout.stride.begin(), layout.stride.end(), to->stride);
  to->bytes = layout.bytes;
}

OOC_EXPORT int64_t oocdnn_gpu_workspace(const Executable* executable) {
  return executable->workspace_bytes();
}

// `tiles`: kX, kW, kY, kBias.
OOC_EXPORT int oocdnn_gpu_run(Rig* rig, Executable* executable, void* const* tiles, void* workspace,
                              int accumulate, char* text, int64_t capacity) {
  RunArgs args;
  for (int i = 0; i < 4; ++i) args.tile[static_cast<size_t>(i)] = tiles[i];
  args.workspace = workspace;
  args.accumulate = accumulate != 0;
  return Answer(rig->device->Run(rig->stream, *executable, args), text, capacity);
}

OOC_EXPORT void oocdnn_gpu_destroy(Executable* executable) { delete executable; }

OOC_EXPORT int oocdnn_gpu_synchronize(Rig* rig, char* text, int64_t capacity) {
  return Answer(rig->device->SynchronizeStream(rig->stream), text, capacity);
}

OOC_EXPORT double oocdnn_gpu_busy_seconds(Rig* rig) {
  return rig->device->BusySeconds(rig->stream);
}

// Bytes of the kernels compiled by NVRTC for sm_<major><minor>, or the negative code.
OOC_EXPORT int64_t oocdnn_gpu_compile(int major, int minor, const char* nvrtc, const char* cache,
                                      char* text, int64_t capacity) {
  const auto binary = cuda::CompiledKernels(major, minor, nvrtc, cache);
  if (!binary.ok()) return -Answer(binary.status(), text, capacity);
  return static_cast<int64_t>(binary.value().size());
}

// How the CUDA device would do the copy: 0 nothing, 1 copy engine, 2 rows, 3 transpose; `calls` and
// `vector` (elements of one access on the view's side) in numbers[0..1].
OOC_EXPORT int oocdnn_gpu_method(const RawTransfer* from, int verb, int host, int64_t* numbers) {
  using namespace cuda;  // NOLINT(google-build-using-namespace)
  const TileLayout layout = LayoutFrom(from->layout);
  const Side wire = verb == 0 ? Side::kFrom : Side::kTo;
  StridedCopy copy = CopyOf(TransferFrom(*from, layout), verb == 0 ? Toward::kTile : Toward::kView);
  if (copy.Elements() == 0) return 0;
  Simplify(&copy, wire);
  const CopyPlan plan =
      PlanCopy(copy, host != 0 ? Tier::kPinned : Tier::kDevice, wire, {INT32_MAX, 132});
  numbers[0] = plan.method == Method::kEngine ? plan.engine.Calls() : 1;
  numbers[1] = plan.method == Method::kRows ? plan.rows.vector
               : verb == 0                  ? plan.transpose.read_vector
                                            : plan.transpose.write_vector;
  return static_cast<int>(plan.method);
}

}  // namespace oocdnn
