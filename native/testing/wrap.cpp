// Scenes for the wrapping devices, and the C function through which pytest plays them. A scene
// writes what there is to see (reports, counts, a trace) as text; the test judges it.
#include <cmath>
#include <cstring>

#include "device/wrap/check_device.hpp"
#include "testing/device_spec.hpp"
#include "testing/export.hpp"
#include "testing/pipeline.hpp"

namespace oocdnn::testing {
namespace {

// What the check device has to say, a line each.
std::string Reports(const SpecDevice& spec) {
  std::string lines;
  for (const std::string& sentence : CheckReports(*spec.check)) lines += sentence + "\n";
  return lines;
}

template <Omit kOmit>
Status Pipelined(SpecDevice& spec, std::string* text) {
  OOC_TRY(RunPipeline(*spec.device, kOmit));
  if (spec.check != nullptr) *text = Reports(spec);
  return {};
}

constexpr Dims kShape{2, 1, 4, 1, 3, 8};

// Drains of two tiles into one array from two streams, at these channels.
Status TwoDrains(SpecDevice& spec, int64_t second_channel, std::string* text) {
  Rig rig(*spec.device);
  const Dims half{2, 1, 2, 1, 3, 8};
  const TileLayout layout = PlainLayout(DType::kFloat32, half);
  OOC_ASSIGN(const Array array, rig.NewArray(kShape, DType::kFloat32));
  for (const int64_t channel : {int64_t{0}, second_channel}) {
    OOC_ASSIGN(const Stream stream, rig.NewStream(channel == 0 ? "first" : "second"));
    OOC_ASSIGN(void* tile, rig.NewTile(Tensor(half, 1), Operand::kY, layout));
    Transfer drain = WholeTransfer(array, Operand::kY, layout, tile);
    drain.box = {
        {0, 0, channel, 0, 0, 0}, half, {0, 0, channel, 0, 0, 0}, {2, 1, channel + 2, 1, 3, 8}};
    drain.tile_end = half;
    OOC_TRY(spec.device->Drain(stream, drain));
  }
  *text = Reports(spec);
  return {};
}

Status DisjointDrains(SpecDevice& spec, std::string* text) { return TwoDrains(spec, 2, text); }
Status OverlappingDrains(SpecDevice& spec, std::string* text) { return TwoDrains(spec, 1, text); }

// One piece of staging memory, seen as two tensors, is written and read without order.
Status StagingReused(SpecDevice& spec, std::string* text) {
  Rig rig(*spec.device);
  const TileLayout layout = PlainLayout(DType::kFloat32, kShape);
  OOC_ASSIGN(const Array array, rig.NewArray(kShape, DType::kFloat32));
  OOC_ASSIGN(const Stream drain, rig.NewStream("drain"));
  OOC_ASSIGN(const Stream fetch, rig.NewStream("fetch"));
  OOC_ASSIGN(void* tile, rig.NewTile(Tensor(kShape, 1), Operand::kY, layout));
  OOC_ASSIGN(void* other, rig.NewBuffer(layout.bytes));
  OOC_TRY(spec.device->Drain(drain, WholeTransfer(array, Operand::kY, layout, tile)));
  Transfer again = WholeTransfer(array, Operand::kX, layout, other);
  again.view.data = static_cast<float*>(array.view.data) - 8;
  again.box.origin[4] = again.box.valid_begin[4] = 1;  // the same bytes under other coordinates
  again.box.valid_end[4] = kShape[4] + 1;
  OOC_TRY(spec.device->Fetch(fetch, again));
  *text = Reports(spec);
  return {};
}

Status BuffersArePoisoned(SpecDevice& spec, std::string* text) {
  Rig rig(*spec.device);
  const TileLayout layout = PlainLayout(DType::kFloat32, kShape);
  OOC_ASSIGN(void* tile, rig.NewBuffer(layout.bytes));
  OOC_ASSIGN(const Tensor seen, rig.Download(Operand::kX, layout, tile));
  int64_t nans = 0;
  for (const double value : seen.values) nans += std::isnan(value) ? 1 : 0;
  *text = Format("%lld of %zu", static_cast<long long>(nans), seen.values.size());
  return {};
}

Status WritesPastTheEnd(SpecDevice& spec, std::string* text) {
  OOC_ASSIGN(void* buffer, spec.device->Allocate(101));
  static_cast<char*>(buffer)[104] = 0;
  spec.device->Free(buffer, 101);
  *text = Reports(spec);
  return {};
}

Status WritesBeforeTheBegin(SpecDevice& spec, std::string* text) {
  OOC_ASSIGN(void* buffer, spec.device->Allocate(128));
  static_cast<char*>(buffer)[-1] = 0;
  spec.device->Free(buffer, 128);
  *text = Reports(spec);
  return {};
}

Status FillsTooMuch(SpecDevice& spec, std::string* text) {
  Rig rig(*spec.device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  OOC_ASSIGN(void* buffer, rig.NewBuffer(64));
  OOC_TRY(spec.device->Fill(stream, buffer, 68, 0));
  *text = Reports(spec);
  return {};
}

// A fetch whose box has a row before the tensor's first.
Status FetchesBeforeTheTensor(SpecDevice& spec, std::string* text) {
  Rig rig(*spec.device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  const TileLayout layout = PlainLayout(DType::kFloat32, kShape);
  OOC_ASSIGN(const Array array, rig.NewArray(kShape, DType::kFloat32));
  OOC_ASSIGN(void* tile, rig.NewBuffer(layout.bytes));
  Transfer transfer = WholeTransfer(array, Operand::kX, layout, tile);
  transfer.view.data = static_cast<float*>(array.view.data) + 8;
  transfer.box.Set(4, {-1, kShape[4], -1, kShape[4] - 1});
  OOC_TRY(spec.device->Fetch(stream, transfer));
  OOC_TRY(spec.device->SynchronizeStream(stream));
  *text = Reports(spec);
  return {};
}

// A fetch into a buffer at this offset, and a run whose tiles lie there.
Status MisalignedSlots(SpecDevice& spec, std::string* text) {
  constexpr int64_t kOffset = 32;
  Rig rig(*spec.device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  const TileLayout layout = PlainLayout(DType::kFloat32, kShape);
  OOC_ASSIGN(const Array array, rig.NewArray(kShape, DType::kFloat32));
  const auto slot = [&]() -> Result<void*> {
    OOC_ASSIGN(void* buffer, rig.NewBuffer(layout.bytes + kOffset));
    return static_cast<void*>(static_cast<char*>(buffer) + kOffset);
  };
  OOC_ASSIGN(void* fetched, slot());
  OOC_TRY(spec.device->Fetch(stream, WholeTransfer(array, Operand::kX, layout, fetched)));
  TileOp op;
  op.direction = Direction::kBackwardBias;
  OOC_ASSIGN(std::unique_ptr<Executable> executable, spec.device->Prepare(0, op));
  RunArgs args;
  for (const Operand operand : {Operand::kY, Operand::kBias}) {
    OOC_ASSIGN(args.tile[Index(operand)], slot());
  }
  OOC_TRY(spec.device->Run(stream, *executable, args));
  OOC_TRY(spec.device->SynchronizeStream(stream));
  *text = Reports(spec);
  return {};
}

Status FreesTwice(SpecDevice& spec, std::string* text) {
  OOC_ASSIGN(void* buffer, spec.device->Allocate(128));
  spec.device->Free(buffer, 100);
  spec.device->Free(buffer, 128);
  OOC_ASSIGN(Event event, spec.device->CreateEvent(EventUse::kHost));
  spec.device->DestroyEvent(event);
  spec.device->DestroyEvent(event);
  *text = Reports(spec);
  return {};
}

Status FreesInUse(SpecDevice& spec, std::string* text) {
  Rig rig(*spec.device);
  OOC_ASSIGN(const Stream stream, rig.NewStream("busy"));
  OOC_ASSIGN(void* buffer, spec.device->Allocate(256));
  OOC_TRY(spec.device->Fill(stream, buffer, 256, 0));
  spec.device->Free(buffer, 256);
  *text = Reports(spec);
  return {};
}

Status DestroysARunningExecutable(SpecDevice& spec, std::string* text) {
  Rig rig(*spec.device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  TileOp op;
  op.direction = Direction::kBackwardBias;
  OOC_ASSIGN(std::unique_ptr<Executable> executable, spec.device->Prepare(0, op));
  RunArgs args;
  for (const Operand operand : {Operand::kY, Operand::kBias}) {
    OOC_ASSIGN(args.tile[Index(operand)], rig.NewBuffer(executable->layout(operand).bytes));
  }
  OOC_TRY(spec.device->Run(stream, *executable, args));
  executable.reset();
  *text = Reports(spec);
  return {};
}

Status Leaks(SpecDevice& spec, std::string* text) {
  OOC_ASSIGN(Stream stream, spec.device->CreateStream("forgotten"));
  OOC_ASSIGN(Event event, spec.device->CreateEvent(EventUse::kHost));
  OOC_ASSIGN(void* buffer, spec.device->Allocate(4096));
  OOC_ASSIGN(void* memory, spec.device->AllocateHost(512));
  for (const std::string& sentence : CheckLeaks(*spec.check)) *text += sentence + "\n";
  spec.device->FreeHost(memory, 512);
  spec.device->Free(buffer, 4096);
  spec.device->DestroyEvent(event);
  spec.device->DestroyStream(stream);
  *text += Format("%zu left", CheckLeaks(*spec.check).size());
  return {};
}

Status CountsCalls(SpecDevice& spec, std::string* text) {
  const Status status = RunPipeline(*spec.device, Omit::kNothing);
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    *text += Format("%lld ",
                    static_cast<long long>(FaultCalls(*spec.fault, static_cast<FaultKind>(kind))));
  }
  if (spec.check != nullptr) *text += Reports(spec);
  return status;
}

// Two traces, the second of which has nothing to tell.
Status Traces(SpecDevice& spec, std::string* text) {
  Span spans[kPipelineSteps];
  OOC_TRY(RunPipeline(*spec.device, Omit::kNothing, spans));
  for (const Span& span : spans) {
    OOC_EXPECT(span.begin_ns > 0 && span.end_ns >= span.begin_ns, "a client's span was not filled");
  }
  const std::string first = TakeTrace(*spec.trace);
  *text = "[" + first + "," + TakeTrace(*spec.trace) + "]";
  return {};
}

// Taking a trace waits for the work, and leaves its errors to whoever synchronises.
Status TracesRunningWork(SpecDevice& spec, std::string* text) {
  Rig rig(*spec.device);
  OOC_ASSIGN(const Stream stream, rig.NewStream("busy"));
  const TileLayout layout = PlainLayout(DType::kFloat32, {1, 1, 64, 1, 64, 64});
  OOC_ASSIGN(const Array array, rig.NewArray(layout.shape, DType::kFloat32));
  OOC_ASSIGN(void* tile, rig.NewBuffer(layout.bytes));
  for (int i = 0; i < 10; ++i) {
    OOC_TRY(spec.device->Fetch(stream, WholeTransfer(array, Operand::kX, layout, tile)));
  }
  *text = TakeTrace(*spec.trace);
  return {};
}

// Takes 1000 bytes at a time until there is no more.
Status Exhausts(SpecDevice& spec, std::string* text) {
  Rig rig(*spec.device);
  for (int buffers = 0;; ++buffers) {
    OOC_ASSIGN(const int64_t free, spec.device->FreeBytes());
    const Status status = rig.NewBuffer(1000).status();
    if (status.ok() && buffers < 100) continue;
    *text = Format("%d buffers, %lld free, least %lld", buffers, static_cast<long long>(free),
                   status.detail());
    return status;
  }
}

struct Scene {
  const char* name;
  Status (*play)(SpecDevice& spec, std::string* text);
};

constexpr Scene kScenes[] = {
    {"pipeline", Pipelined<Omit::kNothing>},
    {"run_without_fetch", Pipelined<Omit::kRunWaitsForFetch>},
    {"drain_without_run", Pipelined<Omit::kDrainWaitsForRun>},
    {"fetch_into_use", Pipelined<Omit::kFetchWaitsForRun>},
    {"run_into_drain", Pipelined<Omit::kRunWaitsForDrain>},
    {"disjoint_drains", DisjointDrains},
    {"overlapping_drains", OverlappingDrains},
    {"staging_reused", StagingReused},
    {"poison", BuffersArePoisoned},
    {"past_the_end", WritesPastTheEnd},
    {"before_the_begin", WritesBeforeTheBegin},
    {"fill_too_much", FillsTooMuch},
    {"before_the_tensor", FetchesBeforeTheTensor},
    {"misaligned_slots", MisalignedSlots},
    {"free_twice", FreesTwice},
    {"free_in_use", FreesInUse},
    {"executable_in_use", DestroysARunningExecutable},
    {"leaks", Leaks},
    {"calls", CountsCalls},
    {"trace", Traces},
    {"trace_running", TracesRunningWork},
    {"exhaust", Exhausts},
};

Status Play(const char* scene, const char* device_spec, std::string* text) {
  OOC_ASSIGN(SpecDevice spec, MakeDevice(device_spec));
  for (const Scene& candidate : kScenes) {
    if (std::strcmp(candidate.name, scene) == 0) return candidate.play(spec, text);
  }
  return Error(Code::kInvalidProblem, "no scene is called \"%s\"", scene);
}

}  // namespace
}  // namespace oocdnn::testing

// Plays a scene on a new device: the code of its Status, its text and, where it failed, the error.
OOC_EXPORT int oocdnn_testing_play(const char* scene, const char* device_spec, char* text,
                                   int64_t text_capacity, char* message, int64_t message_capacity) {
  std::string seen;
  const oocdnn::Status status = oocdnn::testing::Play(scene, device_spec, &seen);
  oocdnn::testing::CopyText(seen, text, text_capacity);
  return oocdnn::testing::Answer(status, message, message_capacity);
}
