// Work that fails after it was enqueued: its stream is marked, told once, and usable again.
#include "testing/conformance_gate.hpp"

namespace oocdnn::testing {
namespace {

constexpr Dims kShape{1, 1, 1, 1, 2, 7};
constexpr const char* kText = "planted failure";

Status Planted(const char* text = kText) { return {Code::kDeviceError, text}; }

// A stream, and a tile on it that holds 1 before the failure.
struct Bench {
  explicit Bench(Device& device) : rig(device) {}
  Status Prepare() {
    layout = PlainLayout(DType::kFloat32, kShape);
    OOC_ASSIGN(stream, rig.NewStream("one"));
    OOC_ASSIGN(tile, rig.NewTile(Tensor(kShape, 1), Operand::kX, layout));
    OOC_ASSIGN(twos, rig.NewArray(kShape, DType::kFloat32));
    twos.Write(Tensor(kShape, 2));
    return {};
  }
  Status FetchTwos() {
    return rig.device().Fetch(stream, WholeTransfer(twos, Operand::kX, layout, tile));
  }
  // Whether the tile holds `value` everywhere.
  Status Expect(double value, const char* what) {
    OOC_ASSIGN(const Tensor seen, rig.Download(Operand::kX, layout, tile));
    const std::string difference = FirstDifference(seen, Tensor(kShape, value));
    OOC_EXPECT(difference.empty(), "%s: %s", what, difference.c_str());
    return {};
  }

  Rig rig;
  TileLayout layout;
  Stream stream = nullptr;
  void* tile = nullptr;
  Array twos;
};

Status ExpectPlanted(const Status& seen, const char* text = kText) {
  OOC_EXPECT(!seen.ok(), "SynchronizeStream does not tell of work that failed");
  OOC_EXPECT(seen.code() == Code::kDeviceError, "the code is \"%s\"", CodeName(seen.code()));
  OOC_EXPECT(seen.message().find(text) != std::string::npos, "the text is \"%s\", without \"%s\"",
             seen.message().c_str(), text);
  return {};
}

Status ErrorSkipsWhatIsBehind(Device& device) {
  Gate failing(true, Planted());
  Bench bench(device);
  OOC_TRY(bench.Prepare());
  OOC_TRY(failing.Enqueue(bench.rig, bench.stream));
  OOC_TRY(bench.FetchTwos());
  OOC_TRY(ExpectPlanted(device.SynchronizeStream(bench.stream)));
  return bench.Expect(1, "a fetch behind work that failed was not skipped");
}

Status ErrorIsToldOnce(Device& device) {
  Gate failing(true, Planted());
  Bench bench(device);
  OOC_TRY(bench.Prepare());
  OOC_TRY(failing.Enqueue(bench.rig, bench.stream));
  OOC_TRY(ExpectPlanted(device.SynchronizeStream(bench.stream)));
  OOC_TRY(device.SynchronizeStream(bench.stream).With("after the error had been told"));
  OOC_TRY(bench.FetchTwos());
  OOC_TRY(device.SynchronizeStream(bench.stream));
  return bench.Expect(2, "a fetch after the error had been told did not run");
}

Status FirstErrorIsTold(Device& device) {
  Gate first(true, Planted("the first")), second(true, Planted("the second"));
  Bench bench(device);
  OOC_TRY(bench.Prepare());
  OOC_TRY(first.Enqueue(bench.rig, bench.stream));
  OOC_TRY(second.Enqueue(bench.rig, bench.stream));
  OOC_TRY(ExpectPlanted(device.SynchronizeStream(bench.stream), "the first"));
  OOC_EXPECT(!second.passed(), "work behind the first failure was run");
  return {};
}

Status EventsFireBehindAnError(Device& device) {
  Gate failing(true, Planted());
  Bench bench(device);
  OOC_TRY(bench.Prepare());
  OOC_ASSIGN(const Stream other, bench.rig.NewStream("other"));
  OOC_ASSIGN(const Event event, bench.rig.NewEvent());
  OOC_TRY(failing.Enqueue(bench.rig, bench.stream));
  OOC_TRY(device.Record(event, bench.stream));
  OOC_TRY(device.Wait(other, event));
  OOC_TRY(device.Fetch(other, WholeTransfer(bench.twos, Operand::kX, bench.layout, bench.tile)));
  OOC_TRY(device.Synchronize(event));
  OOC_TRY(device.SynchronizeStream(other).With("a stream that waited for one that failed"));
  OOC_TRY(bench.Expect(2, "a stream that waited for one that failed did not run"));
  return ExpectPlanted(device.SynchronizeStream(bench.stream));
}

constexpr Case kCases[] = {
    {"error_skips_what_is_behind", ErrorSkipsWhatIsBehind},
    {"error_is_told_once", ErrorIsToldOnce},
    {"first_error_is_told", FirstErrorIsTold},
    {"events_fire_behind_an_error", EventsFireBehindAnError},
};

}  // namespace

std::span<const Case> ErrorCases() { return kCases; }

}  // namespace oocdnn::testing
