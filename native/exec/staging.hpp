// Staging: operands that live in files pass through slabs of host memory. A reader thread fills
// the slab of the next step while the device works on this one; a writer thread empties finished
// tiles. All device calls stay in the thread of the tile loop.
#pragma once

#include <array>
#include <vector>

#include "exec/file_io.hpp"
#include "exec/host_worker.hpp"
#include "memory/owners.hpp"
#include "memory/slabs.hpp"

namespace oocdnn {

// One operand of a call: memory that the device's copies reach, or a file.
struct HostTensor {
  TensorView view;  // view.data is unused for a file
  int fd = -1;
  int64_t offset = 0;  // bytes, of element (0, ..., 0)

  [[nodiscard]] bool in_file() const { return fd >= 0; }
  [[nodiscard]] FileTensor file() const { return {fd, offset, view.dtype, view.stride}; }
};
using HostTensors = std::array<HostTensor, kOperands>;

class Staging {
 public:
  explicit Staging(Device& device) : device_(device) {}
  Status Init();

  // Prepares for one call: a lane of two slabs for every file operand that `used` names, each as
  // large as a box of that operand. Leaves the lanes empty where no operand is a file.
  Status Begin(const HostTensors& tensors, const std::array<Dims, kOperands>& box_extent,
               const std::array<bool, kOperands>& used, Slabs& slabs);

  // Starts reading elements [begin, end) of an input; returns at once.
  Status Post(Operand operand, const Dims& begin, const Dims& end);
  // The view from which the oldest posted box is fetched. Waits for the reader.
  Result<TensorView> Take(Operand operand);
  // The fetch of that box has been enqueued on `stream`: the slab is free when it has run.
  Status Taken(Operand operand, Stream stream);

  // The view into which elements [begin, end) of the output are to be drained.
  Result<TensorView> Give(Operand operand, const Dims& begin, const Dims& end);
  // That drain has been enqueued on `stream`.
  Status Given(Operand operand, Stream stream);
  // Hands finished drains but the `keep` youngest to the writer; waits for the device to finish
  // them, so the caller enqueues the next step first.
  Status Flush(Operand operand, int keep);
  // Everything is read, drained and written, or the first error.
  Status End();

 private:
  struct Box {
    Dims begin{}, end{};
    HostWorker::Ticket ticket = 0;
  };
  struct Lane {
    HostTensor tensor;
    bool active = false;
    std::array<void*, 2> slab{};
    std::array<Box, 2> box;
    int64_t head = 0, tail = 0;  // boxes posted (given), boxes taken (flushed)
  };

  TensorView ViewOf(const Lane& lane, int which) const;

  Device& device_;
  HostWorker reader_, writer_;
  std::array<Lane, kOperands> lanes_;
  std::array<std::array<OwnedEvent, 2>, kOperands> event_;
};

}  // namespace oocdnn
