// Streams and events hold no queue: an event has always fired. Work that fails marks its stream all
// the same, as the contract of Device asks.
#include "testing/null_device.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/checked.hpp"
#include "base/watch.hpp"
#include "device/cpu/engine.hpp"
#include "testing/conformance_reference.hpp"

namespace oocdnn::testing {
namespace {

constexpr int64_t kAlignment = 64;

class Serial final : public cpu::Parallel {
 public:
  [[nodiscard]] int threads() const override { return 1; }
  void For(int64_t count, int64_t, const std::function<void(int64_t, int64_t)>& fn) override {
    if (count > 0) fn(0, count);
  }
};

class NullExecutable final : public Executable {
 public:
  NullExecutable(const TileOp& op, const EngineInfo& info) : op_(op) {
    engine_ = info.name;
    properties_ = info.properties;
    for (const Operand operand : InputsOf(op.direction)) SetLayout(operand, op.dtype);
    SetLayout(OutputOf(op.direction), op.out_dtype);
  }
  void Run(const RunArgs& args) const;

 private:
  void SetLayout(Operand operand, DType dtype) {
    layout_[Index(operand)] = PlainLayout(dtype, op_.shape.DimsOf(operand, op_.direction));
  }
  TileOp op_;
};

void NullExecutable::Run(const RunArgs& args) const {
  Operands operands;
  for (const Operand operand : InputsOf(op_.direction)) {
    const TileLayout& tile = layout(operand);
    Tensor& tensor = operands[Index(operand)] = Tensor(tile.shape);
    ForEach({}, tile.shape, [&](const Dims& i) {
      tensor.at(i) = Load(args.tile[Index(operand)], tile.dtype, OffsetIn(tile, i));
    });
  }
  const Tensor sums = Convolve(op_.direction, op_.shape, operands);
  const Operand output = OutputOf(op_.direction);
  const TileLayout& tile = layout(output);
  void* const out = args.tile[Index(output)];
  ForEach({}, tile.shape, [&](const Dims& i) {
    const int64_t offset = OffsetIn(tile, i);
    const double old = args.accumulate ? Load(out, tile.dtype, offset) : 0.0;
    Store(out, tile.dtype, offset, old + sums.at(i));
  });
}

double Activated(const Epilogue& epilogue, double v) {
  const double parameter = epilogue.parameter;
  switch (epilogue.activation) {
    case Activation::kIdentity: return v;
    case Activation::kRelu: return v < 0.0 ? 0.0 : v;
    case Activation::kClippedRelu: return v < 0.0 ? 0.0 : (v > parameter ? parameter : v);
    case Activation::kElu: return v <= 0.0 ? parameter * std::expm1(v) : v;
    case Activation::kSigmoid: return 1.0 / (1.0 + std::exp(-v));
    case Activation::kTanh: return std::tanh(v);
    case Activation::kSwish: return v / (1.0 + std::exp(-parameter * v));
    case Activation::kSoftplus: return std::log1p(std::exp(parameter * v)) / parameter;
  }
  return v;
}

class NullDevice final : public Device {
 public:
  explicit NullDevice(int64_t memory_bytes) : allowed_(memory_bytes) {
    capabilities_.name = "null";
    capabilities_.description = "everything at once, on the calling thread";
    capabilities_.alignment = kAlignment;
    capabilities_.reads_host = capabilities_.shares_host_memory = true;
    capabilities_.shared_engines = true;
    engines_.push_back(
        {"plain", "", {true, true, true, true}, true, false, false, false, false, false, 16});
  }

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  Result<int64_t> FreeBytes() override { return allowed_ - held_; }

  Result<void*> Allocate(int64_t bytes) override {
    if (Add(held_, bytes) > allowed_) {
      return Error(Code::kOutOfMemory, "%lld bytes requested with %lld of %lld held",
                   static_cast<long long>(bytes), static_cast<long long>(held_),
                   static_cast<long long>(allowed_));
    }
    OOC_ASSIGN(void* buffer, AllocateHost(bytes));
    held_ += bytes;
    return buffer;
  }
  void Free(void* buffer, int64_t bytes) override {
    if (buffer != nullptr) held_ -= bytes;
    std::free(buffer);
  }
  Result<void*> AllocateHost(int64_t bytes) override {
    const int64_t whole = RoundUp(bytes > 0 ? bytes : 1, kAlignment);
    void* const memory = std::aligned_alloc(kAlignment, static_cast<size_t>(whole));
    if (memory == nullptr) {
      return Error(Code::kOutOfMemory, "the host has no %lld bytes", static_cast<long long>(whole));
    }
    return memory;
  }
  void FreeHost(void* memory, int64_t) override { std::free(memory); }

  Status PinHost(void*, int64_t) override { return {}; }
  void UnpinHost(void*, int64_t) override {}
  Result<Location> Locate(const void*, int64_t) override { return Location{Tier::kPageable}; }
  Result<Stream> CreateStream(const char*) override {
    return reinterpret_cast<Stream>(new StreamState);
  }
  void DestroyStream(Stream stream) override { delete &StateOf(stream); }
  Result<Stream> AdoptStream(void*) override {
    return Error(Code::kUnsupported, "the null device has no streams of its callers");
  }
  Result<Event> CreateEvent(EventUse) override { return reinterpret_cast<Event>(new char); }
  void DestroyEvent(Event event) override { delete reinterpret_cast<char*>(event); }
  Status Record(Event, Stream) override { return {}; }
  Status Wait(Stream, Event) override { return {}; }
  Status Synchronize(Event) override { return {}; }
  Status SynchronizeStream(Stream stream) override {
    return std::exchange(StateOf(stream).error, Status());
  }
  double BusySeconds(Stream stream) override { return StateOf(stream).busy_seconds; }

  Status Fetch(Stream stream, const Transfer& transfer) override {
    return Do(stream, transfer.tag, [&] { return FetchNow(transfer); });
  }
  Status Drain(Stream stream, const Transfer& transfer) override {
    return Do(stream, transfer.tag, [&] { return DrainNow(transfer); });
  }
  Status Move(Stream stream, const TileMove& move) override {
    return Do(stream, move.tag, [&] { return MoveNow(move); });
  }
  Status Fill(Stream stream, void* buffer, int64_t bytes, int byte) override {
    return Do(stream, {}, [&] {
      std::memset(buffer, byte, static_cast<size_t>(bytes));
      return Status();
    });
  }

  [[nodiscard]] const std::vector<EngineInfo>& engines() const override { return engines_; }
  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override {
    return std::unique_ptr<Executable>(
        std::make_unique<NullExecutable>(op, engines_[static_cast<size_t>(engine)]));
  }
  Status Run(Stream stream, Executable& executable, const RunArgs& args) override {
    return Do(stream, args.tag, [&] {
      static_cast<NullExecutable&>(executable).Run(args);
      return Status();
    });
  }
  Status Finish(Stream stream, const FinishArgs& args) override {
    if (args.pooled.any())
      return Error(Code::kUnsupported, "the null device makes nothing of sums");
    return Do(stream, args.tag, [&] {
      FinishNow(args);
      return Status();
    });
  }
  Status PoolBackward(Stream, const PoolBackwardArgs&) override {
    return Error(Code::kUnsupported, "the null device restores nothing");
  }
  Status Norm(Stream stream, const NormArgs& args) override {
    return Do(stream, args.tag, [&] {
      NormNow(args);
      return Status();
    });
  }

 private:
  struct StreamState {
    Status error;
    double busy_seconds = 0.0;
  };
  static StreamState& StateOf(Stream stream) { return *reinterpret_cast<StreamState*>(stream); }

  template <class Work>
  static Status Do(Stream stream, const Tag& tag, Work work) {
    StreamState& state = StateOf(stream);
    if (!state.error.ok()) return {};
    const int64_t begin = Now();
    state.error = work();
    const int64_t end = Now();
    state.busy_seconds += static_cast<double>(end - begin) * 1e-9;
    if (tag.span != nullptr) *tag.span = {begin, end};
    return {};
  }

  static Status FetchNow(const Transfer& transfer);
  static Status DrainNow(const Transfer& transfer);
  static Status MoveNow(const TileMove& move);
  static void FinishNow(const FinishArgs& args);
  static void NormNow(const NormArgs& args);

  Capabilities capabilities_;
  std::vector<EngineInfo> engines_;
  const int64_t allowed_;
  int64_t held_ = 0;
};

// Calls visit(offset in the view or -1 where the box is not valid, index in the tile).
template <class Visit>
void ForEachElement(const Transfer& transfer, Visit visit) {
  ForEach(transfer.tile_begin, transfer.tile_end, [&](const Dims& i) {
    int64_t offset = 0;
    for (size_t d = 0; d < i.size(); ++d) {
      const int64_t at = transfer.box.origin[d] + i[d];
      if (at < transfer.box.valid_begin[d] || at >= transfer.box.valid_end[d]) {
        return visit(false, int64_t{0}, i);
      }
      offset += at * transfer.view.stride[d];
    }
    visit(true, offset, i);
  });
}

// Channels that a blocked layout adds are zero; a fetch of a whole tile writes them too.
void ZeroChannelPadding(const Transfer& transfer) {
  TileLayout padded = *transfer.layout;
  const int64_t channels = padded.shape[1] * padded.shape[2];
  const int64_t whole = RoundUp(channels, padded.channel_block);
  padded.shape[1] = 1;
  padded.shape[2] = whole;
  ForEach({0, 0, channels, 0, 0, 0}, padded.shape,
          [&](const Dims& i) { Store(transfer.tile, padded.dtype, OffsetIn(padded, i), 0.0); });
}

Status NullDevice::FetchNow(const Transfer& transfer) {
  const TileLayout& layout = *transfer.layout;
  if (layout.opaque) {
    Serial serial;
    return static_cast<const cpu::NativeLayout*>(layout.native)->Fetch(transfer, serial);
  }
  ForEachElement(transfer, [&](bool valid, int64_t offset, const Dims& i) {
    const double value = valid ? Load(transfer.view.data, transfer.view.dtype, offset) : 0.0;
    Store(transfer.tile, layout.dtype, OffsetIn(layout, i), value);
  });
  if (layout.channel_block > 1) ZeroChannelPadding(transfer);
  return {};
}

Status NullDevice::DrainNow(const Transfer& transfer) {
  const TileLayout& layout = *transfer.layout;
  if (layout.opaque) {
    Serial serial;
    return static_cast<const cpu::NativeLayout*>(layout.native)->Drain(transfer, serial);
  }
  ForEachElement(transfer, [&](bool valid, int64_t offset, const Dims& i) {
    if (!valid) return;
    const double value = Load(transfer.tile, layout.dtype, OffsetIn(layout, i));
    Store(transfer.view.data, transfer.view.dtype, offset, value);
  });
  return {};
}

Status NullDevice::MoveNow(const TileMove& move) {
  const TileLayout& layout = *move.layout;
  ForEach({}, move.extent, [&](const Dims& i) {
    Dims from = i, to = i;
    for (size_t d = 0; d < i.size(); ++d) {
      from[d] += move.from_begin[d];
      to[d] += move.to_begin[d];
    }
    Store(move.to, layout.dtype, OffsetIn(layout, to),
          Load(move.from, layout.dtype, OffsetIn(layout, from)));
  });
  return {};
}

void NullDevice::FinishNow(const FinishArgs& args) {
  const TileLayout& layout = *args.layout;
  const DType per_channel = AccumulatorOf(layout.dtype);
  ForEach({}, layout.shape, [&](const Dims& i) {
    const int64_t offset = OffsetIn(layout, i);
    const int64_t channel = i[1] * layout.shape[2] + i[2];
    double v = args.alpha * Load(args.out, layout.dtype, offset);
    if (args.epilogue.scale) v *= Load(args.scale, per_channel, channel);
    if (args.epilogue.bias) v += Load(args.bias, per_channel, channel);
    if (args.epilogue.residual) {
      v += args.epilogue.residual_alpha * Load(args.residual, layout.dtype, offset);
    }
    if (args.beta != 0.0) v += args.beta * Load(args.old, layout.dtype, offset);
    Store(args.out, layout.dtype, offset, Activated(args.epilogue, v));
  });
}

namespace {

// Adds a channel's elements to its entry in two passes: the mean, then deviations from it.
void SumChannel(const NormArgs& args, const Dims& channel, double* entry) {
  Dims end = args.end;
  for (size_t d = 0; d < 3; ++d) end[d] = channel[d] + 1;
  const auto for_values = [&](const auto& fn) {
    ForEach(channel, end, [&](const Dims& i) {
      fn(Rounded(args.rounded, Load(args.tile, args.layout->dtype, OffsetIn(*args.layout, i))));
    });
  };
  double count = 0.0, first = 0.0, apart = 0.0, deviations = 0.0;
  for_values([&](double v) {
    if (count++ == 0.0) first = v;
    entry[kSumOf] += v;
    entry[kSquaresOf] += v * v;
    apart += v - first;
  });
  const double mean = apart / count;  // relative to the first
  for_values([&](double v) { deviations += (v - first - mean) * (v - first - mean); });
  const double before = entry[kCountOf], total = before + count;
  const double between = before > 0.0 ? first + mean - entry[kMeanOf] : 0.0;
  entry[kMeanOf] = before > 0.0 ? entry[kMeanOf] + between * count / total : first + mean;
  entry[kDeviationsOf] += deviations + between * between * before * count / total;
  entry[kCountOf] = total;
}

}  // namespace

void NullDevice::NormNow(const NormArgs& args) {
  const TileLayout& layout = *args.layout;
  const Epilogue activation{.activation = args.activation, .parameter = args.parameter};
  const DType type = args.TableType();
  if (args.pass == NormPass::kSum && !args.empty()) {
    Dims last = args.end;
    for (size_t d = 3; d < 6; ++d) last[d] = args.begin[d] + 1;
    return ForEach(args.begin, last, [&](const Dims& i) {
      SumChannel(args, i, static_cast<double*>(args.table) + args.EntryOf(i[0], i[1], i[2]));
    });
  }
  ForEach(args.begin, args.end, [&](const Dims& i) {
    const int64_t offset = OffsetIn(layout, i), entry = args.EntryOf(i[0], i[1], i[2]);
    double v = Load(args.tile, layout.dtype, offset);
    if (args.table != nullptr) {
      v = v * Load(args.table, type, entry) + Load(args.table, type, entry + 1);
    }
    Store(args.tile, layout.dtype, offset, Activated(activation, v));
  });
}

}  // namespace

std::unique_ptr<Device> MakeNullDevice(int64_t memory_bytes) {
  return std::make_unique<NullDevice>(memory_bytes);
}

}  // namespace oocdnn::testing
