#include "calibrate/copy_bench.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "calibrate/measure.hpp"

namespace oocdnn {

CopyBench::CopyBench(Device& device, int64_t limit, bool shared_engines)
    : device_(device),
      limit_(limit),
      shared_engines_(shared_engines),
      in_(HostBlock(device, kCopyBytes)),
      out_(HostBlock(device, kCopyBytes)) {}

Result<std::unique_ptr<CopyBench>> CopyBench::Make(Device& device, int64_t limit,
                                                   bool shared_engines) {
  std::unique_ptr<CopyBench> bench(new CopyBench(device, limit, shared_engines));
  if (bench->in_.get() == nullptr || bench->out_.get() == nullptr) {
    return Error(Code::kOutOfMemory, "no host memory to calibrate");
  }
  std::memset(bench->in_.get(), 0, static_cast<size_t>(kCopyBytes));
  std::memset(bench->out_.get(), 0, static_cast<size_t>(kCopyBytes));
  OOC_TRY(bench->MakeStreams());
  return bench;
}

Status CopyBench::MakeStreams() {
  OOC_ASSIGN(fetch_, MakeStream(device_, "calibrate fetch"));
  OOC_ASSIGN(compute_, MakeStream(device_, "calibrate compute"));
  OOC_ASSIGN(drain_, MakeStream(device_, "calibrate drain"));
  OOC_ASSIGN(turn_, MakeEvent(device_));
  return {};
}

Result<std::unique_ptr<Rig>> CopyBench::RigOf(int engine, int64_t rows, int64_t width,
                                              Math math) const {
  ConvShape shape;
  shape.n = kCopyWidth / width;
  shape.k = shape.c = kCopyChannels;
  shape.in = shape.out = {1, rows, width};
  const ConvShape its = ShapeFor(device_.engines()[static_cast<size_t>(engine)], shape);
  return Rig::Make(device_, engine, SampleOf(its, DType::kFloat32, math, Direction::kForward),
                   limit_, Timed::kCopies);
}

Result<std::unique_ptr<Rig>> CopyBench::FirstRig(int64_t rows, int64_t width, bool plain) const {
  Status refusal = Error(Code::kUnsupported, "no engine's tiles lie as the host's");
  for (int engine = 0; engine < static_cast<int>(device_.engines().size()); ++engine) {
    const EngineInfo& info = device_.engines()[static_cast<size_t>(engine)];
    if (plain && (info.channels_last || IsLastResort(info))) continue;
    auto rig = RigOf(engine, rows, width);
    if (rig.ok()) return rig;
    refusal = std::move(rig).status();
  }
  return plain ? FirstRig(rows, width) : Result<std::unique_ptr<Rig>>(std::move(refusal));
}

std::vector<double> CopyBench::Fetches(const Rig& rig, const Host& host, int runs) const {
  const auto fetch = [&](Span* span) {
    return device_.Fetch(fetch_.get(), rig.TransferOf(Operand::kX, host, span));
  };
  return RunsOf(device_, fetch_.get(), fetch, kInfinity, runs);
}

std::vector<double> CopyBench::Drains(const Rig& rig, const Host& host, int runs) const {
  const auto drain = [&](Span* span) {
    return device_.Drain(drain_.get(), rig.TransferOf(Operand::kY, host, span));
  };
  return RunsOf(device_, drain_.get(), drain, kInfinity, runs);
}

double CopyBench::Pair::All() const {
  return SecondsOf(
      {std::min(fetched.begin_ns, drained.begin_ns), std::max(fetched.end_ns, drained.end_ns)});
}

double CopyBench::Pair::Together() const {
  return SecondsOf(
      {std::max(fetched.begin_ns, drained.begin_ns), std::min(fetched.end_ns, drained.end_ns)});
}

Result<CopyBench::Pair> CopyBench::FetchAndDrain(Rig& rig, const Host& from, const Host& to,
                                                 int runs) const {
  Pair pair;
  Status status;
  for (int run = 0; run < runs && !shared_engines_ && status.ok(); ++run) {
    status = rig.Run(compute_.get(), nullptr);
  }
  if (status.ok()) {
    status = device_.Fetch(fetch_.get(), rig.TransferOf(Operand::kX, from, &pair.fetched));
  }
  if (status.ok()) {
    status = device_.Drain(drain_.get(), rig.TransferOf(Operand::kY, to, &pair.drained));
  }
  OOC_TRY(Settle(std::move(status)));
  return pair;
}

Timing CopyBench::BestOfBoth(Rig& rig, const Host& from, const Host& to) const {
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto pair = FetchAndDrain(rig, from, to);
    if (!pair.ok()) return {};
    seconds.push_back(pair->All());
  }
  return TimingOf(std::move(seconds));
}

// What one does while the other is not under way counts as long as it would take beside it; as
// `single` may be guessed too short, the middle one of many counts and not the fastest.
Timing CopyBench::MiddleOfBoth(Rig& rig, const Host& from, const Host& to, double single) const {
  std::vector<double> seconds;
  for (int i = 0; i < kManyRepetitions; ++i) {
    const auto pair = FetchAndDrain(rig, from, to);
    if (!pair.ok()) return {};
    const double all = pair->All(), together = pair->Together();
    const double left = 2.0 - (all - together) / single;  // of two copies
    seconds.push_back(together > all / 2 && left > 0.0 ? together * 2.0 / left : all);
  }
  return MiddleOf(std::move(seconds));
}

CopyBench::Each CopyBench::MiddleOfEach(Rig& rig, const Host& from, const Host& to,
                                        int runs) const {
  std::vector<double> fetches, drains;
  for (int i = 0; i < 2 * kRepetitions; ++i) {
    const auto pair = FetchAndDrain(rig, from, to, runs);
    if (!pair.ok()) return {};
    fetches.push_back(SecondsOf(pair->fetched));
    drains.push_back(SecondsOf(pair->drained));
  }
  return {MiddleOf(std::move(fetches)), MiddleOf(std::move(drains))};
}

Status CopyBench::InTurn(const OwnedStream& first, const OwnedStream& then) const {
  OOC_TRY(device_.Record(turn_.get(), first.get()));
  return device_.Wait(then.get(), turn_.get());
}

Status CopyBench::Settle(Status status) const {
  for (const OwnedStream* stream : {&fetch_, &compute_, &drain_}) {
    Status ended = device_.SynchronizeStream(stream->get());
    if (status.ok()) status = std::move(ended);
  }
  return status;
}

}  // namespace oocdnn
