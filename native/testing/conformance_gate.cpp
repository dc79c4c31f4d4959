#include "testing/conformance_gate.hpp"

#include <chrono>
#include <thread>

namespace oocdnn::testing {
namespace {

constexpr Dims kShape{1, 1, 1, 1, 1, 16};
constexpr std::chrono::milliseconds kLongest{500};

}  // namespace

Gate::Gate(bool open, Status result) : result_(std::move(result)), open_(open) {
  layout_ = PlainLayout(DType::kFloat32, kShape);
  layout_.opaque = true;
  layout_.native = static_cast<const cpu::NativeLayout*>(this);
}

Status Gate::Enqueue(Rig& rig, Stream stream) {
  if (!rig.device().capabilities().shares_host_memory) {
    return Error(Code::kUnsupported, "only a device on the host has copies that can be held up");
  }
  OOC_ASSIGN(const Array array, rig.NewArray(kShape, DType::kFloat32));
  OOC_ASSIGN(void* tile, rig.NewBuffer(layout_.bytes));
  return rig.device().Fetch(stream, WholeTransfer(array, Operand::kX, layout_, tile));
}

void Gate::Open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

Status Gate::Fetch(const Transfer&, cpu::Parallel&) const {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds_));
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kLongest, [this] { return open_; });
  passed_ = true;
  return result_;
}

Status Gate::Drain(const Transfer& transfer, cpu::Parallel& parallel) const {
  return Fetch(transfer, parallel);
}

}  // namespace oocdnn::testing
