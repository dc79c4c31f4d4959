// C functions for what only the CPU device promises: life after a fork, the throttled link, and
// half precision by the processor's instructions as by our own.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "device/cpu/convert_run.hpp"
#include "device/cpu/cpu_device.hpp"
#include "testing/child.hpp"
#include "testing/conformance_rig.hpp"
#include "testing/export.hpp"

namespace oocdnn::testing {
namespace {

constexpr Dims kDims{1, 1, 64, 1, 256, 256};  // 16 MiB of float
constexpr int64_t kBytes = int64_t{16} << 20;

// A stream with work on a large tile, and the array that it copies from and to.
struct Work {
  explicit Work(Device& device) : rig(device), layout(PlainLayout(DType::kFloat32, kDims)) {}

  Status Make() {
    OOC_ASSIGN(array, rig.NewArray(kDims, DType::kFloat32));
    OOC_ASSIGN(tile, rig.NewBuffer(layout.bytes));
    OOC_ASSIGN(stream, rig.NewStream("work"));
    OOC_ASSIGN(event, rig.NewEvent());
    return {};
  }
  Status Fetch(Stream on, Span* span = nullptr) const {
    Transfer transfer = WholeTransfer(array, Operand::kX, layout, tile);
    transfer.tag.span = span;
    return rig.device().Fetch(on, transfer);
  }

  Rig rig;
  TileLayout layout;
  Array array;
  void* tile = nullptr;
  Stream stream = nullptr;
  Event event = nullptr;
};

// What a forked child does with the parent's device; the parent's queue does not exist for it.
Status LiveOn(const Work& work) {
  Device& device = work.rig.device();
  OOC_TRY(device.Synchronize(work.event));
  OOC_TRY(device.SynchronizeStream(work.stream));
  std::memset(work.tile, 0xff, static_cast<size_t>(kBytes));
  OOC_TRY(work.Fetch(work.stream));
  OOC_TRY(device.Record(work.event, work.stream));
  OOC_TRY(device.Synchronize(work.event));
  OOC_EXPECT(std::memcmp(work.tile, work.array.view.data, static_cast<size_t>(kBytes)) == 0,
             "the child's fetch did not fill its tile");
  return device.SynchronizeStream(work.stream);
}

Status ForkOnce(const Work& work, int delay_us) {
  for (int i = 0; i < 4; ++i) OOC_TRY(work.Fetch(work.stream));
  OOC_TRY(work.rig.device().Record(work.event, work.stream));
  usleep(static_cast<useconds_t>(delay_us));
  OOC_TRY(InChild([&] { return LiveOn(work); }));
  return work.rig.device().SynchronizeStream(work.stream);
}

Status ForkMany(int rounds) {
  OOC_ASSIGN(const auto device, MakeCpuDevice({.threads = 2, .engine = "reference"}));
  Work work(*device);
  OOC_TRY(work.Make());
  std::memset(work.array.view.data, 0x11, static_cast<size_t>(kBytes));
  // Forks before the first work, within it and behind it.
  for (int i = 0; i < rounds; ++i) OOC_TRY(ForkOnce(work, i * 400));
  return {};
}

// Two fetches on two streams take turns on the wire; the cores are free meanwhile.
Status Throttle() {
  constexpr double kRate = 0.1;  // GB/s, that is bytes per ns
  OOC_ASSIGN(const auto device, MakeCpuDevice({.link_gb_per_s = kRate, .engine = "reference"}));
  OOC_EXPECT(!device->capabilities().shared_engines, "a wire shares no engine with the cores");
  Work one(*device), two(*device);
  OOC_TRY(one.Make());
  OOC_TRY(two.Make());
  OOC_ASSIGN(const Stream compute, one.rig.NewStream("compute"));
  Span first, second, finish;
  OOC_TRY(one.Fetch(one.stream, &first));
  OOC_TRY(two.Fetch(two.stream, &second));
  FinishArgs args;
  OOC_ASSIGN(args.out, one.rig.NewBuffer(one.layout.bytes));
  args.layout = &one.layout;
  args.tag.span = &finish;
  OOC_TRY(device->Fill(compute, args.out, kBytes, 0));
  OOC_TRY(device->Finish(compute, args));
  for (const Stream stream : {one.stream, two.stream, compute}) {
    OOC_TRY(device->SynchronizeStream(stream));
  }
  const auto least = static_cast<int64_t>(static_cast<double>(kBytes) / kRate);
  const int64_t begin = std::min(first.begin_ns, second.begin_ns);
  const int64_t end = std::max(first.end_ns, second.end_ns);
  OOC_EXPECT(end - begin >= 2 * least, "two fetches of %lld ns each took %lld ns",
             static_cast<long long>(least), static_cast<long long>(end - begin));
  OOC_EXPECT(finish.end_ns < end, "the cores waited for the wire");
  return {};
}

bool SameHalf(Float16 a, Float16 b) {
  const float x = ToFloat(a), y = ToFloat(b);
  return a.bits == b.bits || (std::isnan(x) && std::isnan(y));
}

// Floats beside `pattern` and beside the middle between it and the next half, as vectors round them
// and as one element is rounded.
Status RoundBeside(uint32_t pattern) {
  float beside[8];
  for (uint32_t i = 0; i < 8; ++i) {
    beside[i] = std::bit_cast<float>(pattern + (i % 4 - 1) + (i / 4) * 0x1000u);
  }
  Float16 halves[8];
  cpu::ConvertRun(beside, halves, 8);
  for (int i = 0; i < 8; ++i) {
    OOC_EXPECT(SameHalf(halves[i], ToFloat16(beside[i])), "%a is rounded in two ways",
               static_cast<double>(beside[i]));
  }
  return {};
}

// A double just above the middle of two halves goes up, though float takes it for the middle.
Status RoundOnce(uint32_t pattern) {
  const auto up = std::bit_cast<float>(pattern + 0x1001u);
  if (!std::isfinite(up) || std::abs(up) < 0x1p-14f) return {};
  const auto middle = static_cast<double>(std::bit_cast<float>(pattern + 0x1000u));
  const double above = std::nextafter(middle, std::copysign(INFINITY, middle));
  OOC_EXPECT(SameHalf(cpu::Convert<Float16>(above), ToFloat16(up)), "%a is rounded twice", above);
  return {};
}

// Every half to float and back, and the floats and doubles around it.
Status Halves() {
  for (uint32_t bits = 0; bits < 0x10000; bits += 8) {
    Float16 halves[8], back[8];
    float wide[8];
    for (uint32_t i = 0; i < 8; ++i) halves[i] = {static_cast<uint16_t>(bits + i)};
    cpu::ConvertRun(halves, wide, 8);
    cpu::ConvertRun(wide, back, 8);
    for (uint32_t i = 0; i < 8; ++i) {
      const float wanted = ToFloat(halves[i]);
      const bool same = wide[i] == wanted || (std::isnan(wide[i]) && std::isnan(wanted));
      OOC_EXPECT(same && SameHalf(back[i], halves[i]), "half 0x%04x goes astray", bits + i);
      OOC_TRY(RoundBeside(std::bit_cast<uint32_t>(wide[i])));
      OOC_TRY(RoundOnce(std::bit_cast<uint32_t>(wide[i])));
    }
  }
  return {};
}

}  // namespace
}  // namespace oocdnn::testing

OOC_EXPORT int oocdnn_testing_cpu_fork(int rounds, char* message, int64_t capacity) {
  return oocdnn::testing::Answer(oocdnn::testing::ForkMany(rounds), message, capacity);
}

OOC_EXPORT int oocdnn_testing_cpu_throttle(char* message, int64_t capacity) {
  return oocdnn::testing::Answer(oocdnn::testing::Throttle(), message, capacity);
}

OOC_EXPORT int oocdnn_testing_cpu_halves(char* message, int64_t capacity) {
  return oocdnn::testing::Answer(oocdnn::testing::Halves(), message, capacity);
}
