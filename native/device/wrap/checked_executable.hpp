// An executable that remembers what its tiles are for, and tells the check device when it goes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "device/device.hpp"
#include "device/wrap/order.hpp"

namespace oocdnn {

// Told of an executable's last run; empty inside once the device is gone.
using OnExecutableGone = std::shared_ptr<std::function<void(const Order::Point&)>>;

class CheckedExecutable final : public Executable {
 public:
  CheckedExecutable(std::unique_ptr<Executable> inner, Direction direction, OnExecutableGone gone)
      : inner_(std::move(inner)), direction_(direction), gone_(std::move(gone)) {
    engine_ = inner_->engine();
    properties_ = inner_->properties();
    workspace_bytes_ = inner_->workspace_bytes();
    run_seconds_ = inner_->run_seconds();
    for (int i = 0; i < kOperands; ++i) layout_[i] = inner_->layout(static_cast<Operand>(i));
  }
  ~CheckedExecutable() override {
    if (*gone_ && last_run_) (*gone_)(*last_run_);
  }
  CheckedExecutable(const CheckedExecutable&) = delete;
  CheckedExecutable& operator=(const CheckedExecutable&) = delete;

  [[nodiscard]] Executable& inner() const { return *inner_; }
  [[nodiscard]] Direction direction() const { return direction_; }
  void RanAt(const Order::Point& point) { last_run_ = point; }

 private:
  std::unique_ptr<Executable> inner_;
  Direction direction_;
  OnExecutableGone gone_;
  std::optional<Order::Point> last_run_;
};

}  // namespace oocdnn
