// What a convolution engine of the CPU device is. The built-in engines (reference, direct) and the
// oneDNN plug-in implement these two classes; the device owns threads, streams and copies.
#pragma once

#include <functional>
#include <memory>

#include "device/device.hpp"

namespace oocdnn::cpu {

// Runs fn(begin, end) over [0, count) in pieces on all threads of the device, and returns when all
// is done. Pieces are cut at fixed places, so that a result never depends on the thread count
// (each piece must write its own elements).
class Parallel {
 public:
  virtual ~Parallel() = default;
  [[nodiscard]] virtual int threads() const = 0;
  virtual void For(int64_t count, int64_t grain,
                   const std::function<void(int64_t, int64_t)>& fn) = 0;
};

// TileLayout::native points to one of these where the engine copies its own layout itself. A
// Transfer of an opaque layout always goes here; any other does when CanCopy says so.
class NativeLayout {
 public:
  virtual ~NativeLayout() = default;
  [[nodiscard]] virtual bool CanCopy(const Transfer& transfer) const = 0;
  virtual Status Fetch(const Transfer& transfer, Parallel& parallel) const = 0;
  virtual Status Drain(const Transfer& transfer, Parallel& parallel) const = 0;
};

class CpuExecutable : public Executable {
 public:
  virtual Status Run(const RunArgs& args, Parallel& parallel) = 0;
};

class CpuEngine {
 public:
  virtual ~CpuEngine() = default;
  [[nodiscard]] virtual const EngineInfo& info() const = 0;
  virtual Result<std::unique_ptr<CpuExecutable>> Prepare(const TileOp& op, int threads) = 0;
  // After a fork, in the child: forget threads that no longer exist.
  virtual void AfterFork() {}
};

std::unique_ptr<CpuEngine> MakeReferenceEngine();
std::unique_ptr<CpuEngine> MakeDirectEngine();
// Loads the oneDNN plug-in; null with the reason in *why where it cannot be had.
std::unique_ptr<CpuEngine> LoadOneDnnEngine(std::string* why);

}  // namespace oocdnn::cpu
