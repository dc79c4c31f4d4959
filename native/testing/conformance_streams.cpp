// Streams and events: what runs before what, and what the host is told.
#include <memory>

#include "base/watch.hpp"
#include "testing/conformance_gate.hpp"

namespace oocdnn::testing {
namespace {

constexpr Dims kShape{1, 1, 2, 1, 3, 5};

Result<Array> Constant(Rig& rig, double value) {
  OOC_ASSIGN(const Array array, rig.NewArray(kShape, DType::kFloat32));
  array.Write(Tensor(kShape, value));
  return array;
}

Status ExpectConstant(const Array& array, double value, const char* what) {
  const std::string difference = FirstDifference(array.Read(), Tensor(kShape, value));
  OOC_EXPECT(difference.empty(), "%s: %s", what, difference.c_str());
  return {};
}

Status StreamRunsInOrder(Device& device) {
  Rig rig(device);
  const TileLayout layout = PlainLayout(DType::kFloat32, kShape);
  OOC_ASSIGN(const Stream stream, rig.NewStream("one"));
  OOC_ASSIGN(void* tile, rig.NewBuffer(layout.bytes));
  std::vector<Array> drained;
  for (int round = 0; round < 20; ++round) {
    OOC_ASSIGN(const Array in, Constant(rig, round));
    OOC_ASSIGN(const Array out, Constant(rig, -1));
    OOC_TRY(device.Fetch(stream, WholeTransfer(in, Operand::kX, layout, tile)));
    OOC_TRY(device.Drain(stream, WholeTransfer(out, Operand::kX, layout, tile)));
    drained.push_back(out);
  }
  OOC_TRY(device.SynchronizeStream(stream));
  for (int round = 0; round < 20; ++round) {
    OOC_TRY(ExpectConstant(drained[round], round, "a drain between two fetches of one stream"));
  }
  return {};
}

Status EnqueueReturnsBeforeTheWork(Device& device) {
  Gate gate(false);
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.NewStream("one"));
  OOC_TRY(gate.Enqueue(rig, stream));
  const bool early = !gate.passed();
  gate.Open();
  OOC_TRY(device.SynchronizeStream(stream));
  OOC_EXPECT(gate.passed(), "SynchronizeStream returned before the work was done");
  OOC_EXPECT(early, "Fetch returned only when its work was done");
  return {};
}

Status UnrecordedEventHasFired(Device& device) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.NewStream("one"));
  OOC_ASSIGN(const Event event, rig.NewEvent());
  OOC_TRY(device.Synchronize(event));
  OOC_TRY(device.Wait(stream, event));
  return device.SynchronizeStream(stream);
}

// Enqueues a slow gate and a Record, waits for the event, and expects the gate to be behind.
Status ExpectEventWaits(Rig& rig, Gate& gate, Stream stream, Event event) {
  gate.Delay(20);
  OOC_TRY(gate.Enqueue(rig, stream));
  OOC_TRY(rig.device().Record(event, stream));
  OOC_TRY(rig.device().Synchronize(event));
  OOC_EXPECT(gate.passed(), "Synchronize returned before the work that the event stands for");
  return {};
}

Status SynchronizeEventWaits(Device& device) {
  Gate gate;
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.NewStream("one"));
  OOC_ASSIGN(const Event event, rig.NewEvent());
  return ExpectEventWaits(rig, gate, stream, event);
}

Status EventCanBeRecordedAgain(Device& device) {
  Gate first, second;
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.NewStream("one"));
  OOC_ASSIGN(const Event event, rig.NewEvent());
  OOC_TRY(ExpectEventWaits(rig, first, stream, event));
  return ExpectEventWaits(rig, second, stream, event);
}

// A Wait means the record that was the latest when Wait was called, not a later one.
Status WaitTakesTheLatestRecord(Device& device) {
  Gate gate(false);
  Rig rig(device);
  OOC_ASSIGN(const Stream busy, rig.NewStream("busy"));
  OOC_ASSIGN(const Stream waiting, rig.NewStream("waiting"));
  OOC_ASSIGN(const Event event, rig.NewEvent());
  OOC_TRY(device.Record(event, busy));
  OOC_TRY(device.Wait(waiting, event));
  OOC_TRY(gate.Enqueue(rig, busy));
  OOC_TRY(device.Record(event, busy));
  OOC_TRY(device.SynchronizeStream(waiting));
  const bool early = !gate.passed();
  gate.Open();
  OOC_TRY(device.SynchronizeStream(busy));
  OOC_EXPECT(early, "a stream waited for an event that was recorded after its Wait");
  return {};
}

// Two streams that hand one tile back and forth; the one that writes is slow.
struct Handover {
  explicit Handover(Device& device) : rig(device) {}

  Status Prepare() {
    OOC_ASSIGN(in, rig.NewStream("in"));
    OOC_ASSIGN(out, rig.NewStream("out"));
    OOC_ASSIGN(written, rig.NewEvent());
    OOC_ASSIGN(read, rig.NewEvent());
    OOC_ASSIGN(tile, rig.NewTile(Tensor(kShape, -1), Operand::kX, layout));
    return {};
  }

  Status Round(double value) {
    Device& device = rig.device();
    gates.push_back(std::make_unique<Gate>());
    gates.back()->Delay(5);
    OOC_ASSIGN(const Array from, Constant(rig, value));
    OOC_ASSIGN(const Array to, Constant(rig, -2));
    OOC_TRY(device.Wait(in, read));
    OOC_TRY(gates.back()->Enqueue(rig, in));
    OOC_TRY(device.Fetch(in, WholeTransfer(from, Operand::kX, layout, tile)));
    OOC_TRY(device.Record(written, in));
    OOC_TRY(device.Wait(out, written));
    OOC_TRY(device.Drain(out, WholeTransfer(to, Operand::kX, layout, tile)));
    drained.push_back(to);
    return device.Record(read, out);
  }

  const TileLayout layout = PlainLayout(DType::kFloat32, kShape);
  std::vector<std::unique_ptr<Gate>> gates;  // outlive the rig
  std::vector<Array> drained;
  Rig rig;
  Stream in = nullptr, out = nullptr;
  Event written = nullptr, read = nullptr;
  void* tile = nullptr;
};

Status WaitOrdersStreams(Device& device) {
  constexpr int kRounds = 10;
  Handover handover(device);
  OOC_TRY(handover.Prepare());
  for (int round = 0; round < kRounds; ++round) OOC_TRY(handover.Round(round));
  OOC_TRY(device.SynchronizeStream(handover.out));
  for (int round = 0; round < kRounds; ++round) {
    OOC_TRY(
        ExpectConstant(handover.drained[round], round, "a drain that waits for a fetch elsewhere"));
  }
  return device.SynchronizeStream(handover.in);
}

Status SpansTellWhenWorkRan(Device& device) {
  Rig rig(device);
  const TileLayout layout = PlainLayout(DType::kFloat32, kShape);
  OOC_ASSIGN(const Stream stream, rig.NewStream("one"));
  OOC_ASSIGN(void* tile, rig.NewBuffer(layout.bytes));
  OOC_ASSIGN(const Array array, Constant(rig, 1));
  Span spans[2];
  const int64_t before = Now();
  Transfer transfer = WholeTransfer(array, Operand::kX, layout, tile);
  transfer.tag.span = &spans[0];
  OOC_TRY(device.Fetch(stream, transfer));
  transfer.tag.span = &spans[1];
  OOC_TRY(device.Drain(stream, transfer));
  OOC_TRY(device.SynchronizeStream(stream));
  const int64_t after = Now();
  const int64_t times[] = {
      before, spans[0].begin_ns, spans[0].end_ns, spans[1].begin_ns, spans[1].end_ns, after};
  for (int i = 1; i < 6; ++i) {
    OOC_EXPECT(times[i] >= times[i - 1],
               "times of a fetch and a drain behind it are out of order: number %d of (enqueue, "
               "begin, end, begin, end, synchronised) is %lld ns before its predecessor",
               i, static_cast<long long>(times[i - 1] - times[i]));
  }
  return {};
}

Status BusySecondsGrow(Device& device) {
  Rig rig(device);
  constexpr Dims kLarge{1, 1, 16, 1, 256, 256};
  const TileLayout layout = PlainLayout(DType::kFloat32, kLarge);
  OOC_ASSIGN(const Stream stream, rig.NewStream("one"));
  OOC_ASSIGN(void* tile, rig.NewBuffer(layout.bytes));
  OOC_ASSIGN(const Array array, rig.NewArray(kLarge, DType::kFloat32));
  const double start = device.BusySeconds(stream);
  const int64_t before = Now();
  OOC_TRY(device.Fetch(stream, WholeTransfer(array, Operand::kX, layout, tile)));
  OOC_TRY(device.SynchronizeStream(stream));
  const double wall = static_cast<double>(Now() - before) * 1e-9;
  const double busy = device.BusySeconds(stream);
  OOC_EXPECT(start == 0.0, "a new stream has been busy for %g s", start);
  OOC_EXPECT(busy > 0.0, "a fetch of 4 MiB left the stream busy for %g s", busy);
  OOC_EXPECT(busy <= wall, "the stream was busy for %g s of %g s", busy, wall);
  return {};
}

constexpr Case kCases[] = {
    {"stream_runs_in_order", StreamRunsInOrder},
    {"enqueue_returns_before_the_work", EnqueueReturnsBeforeTheWork},
    {"unrecorded_event_has_fired", UnrecordedEventHasFired},
    {"synchronize_event_waits", SynchronizeEventWaits},
    {"event_can_be_recorded_again", EventCanBeRecordedAgain},
    {"wait_takes_the_latest_record", WaitTakesTheLatestRecord},
    {"wait_orders_streams", WaitOrdersStreams},
    {"spans_tell_when_work_ran", SpansTellWhenWorkRan},
    {"busy_seconds_grow", BusySecondsGrow},
};

}  // namespace

std::span<const Case> StreamCases() { return kCases; }

}  // namespace oocdnn::testing
