// Staging: operands that the device's copies do not reach (pageable memory, files) pass through
// slabs of host memory. A reader fills the slab of the next step while the device works on this
// one; a writer empties finished tiles. Both wait for the device in threads of their own; all else
// that concerns the device stays in the thread of the tile loop.
#pragma once

#include <array>
#include <vector>

#include "exec/copy_team.hpp"
#include "exec/file_io.hpp"
#include "exec/host_worker.hpp"
#include "memory/owners.hpp"
#include "memory/slabs.hpp"

namespace oocdnn {

// One operand of a call: memory, wherever it lives, or a file.
struct HostTensor {
  TensorView view;  // view.data is unused for a file
  int fd = -1;
  int64_t offset = 0;           // bytes, of element (0, ..., 0)
  Tier tier = Tier::kPageable;  // of memory; what is not known to be better is staged

  [[nodiscard]] bool in_file() const { return fd >= 0; }
};
using HostTensors = std::array<HostTensor, kOperands>;

class Staging {
 public:
  // `threads` copy pageable memory; 0: as many as fill a wire, where the process has them.
  Staging(Device& device, int threads);
  Status Init();

  // What a call does with an operand: whether it uses it, whether it writes it, whether there is
  // only one box of it, and the extents of the largest.
  struct Use {
    bool used = false, written = false, single = false;
    Dims box{};
  };
  using Uses = std::array<Use, kOperands>;

  // Prepares for one call: a lane of slabs, each as large as a box, for every used operand that the
  // device does not reach.
  Status Begin(const HostTensors& tensors, const Uses& uses, Slabs& slabs);
  // Whether the operand has a lane: its boxes then go through Post to Given.
  [[nodiscard]] bool Serves(Operand operand) const { return !lanes_[Index(operand)].slab.empty(); }

  // Starts reading elements [begin, end) of an input; returns at once. At most as many boxes as the
  // lane has slabs are posted and not yet taken: one more than one, where the operand has several.
  Status Post(Operand operand, const Dims& begin, const Dims& end);
  // The view from which the oldest posted box is fetched. Waits for the reader.
  Result<TensorView> Take(Operand operand);
  // The fetch of that box has been enqueued on `stream`: the slab is free when it has run.
  Status Taken(Operand operand, Stream stream);

  // The view into which elements [begin, end) of the output are to be drained. Waits for the writer
  // to have emptied the oldest slab.
  Result<TensorView> Give(Operand operand, const Dims& begin, const Dims& end);
  // That drain has been enqueued on `stream`: the writer goes on from there.
  Status Given(Operand operand, Stream stream);
  // Everything is read, drained and written, or the first error.
  Status End();

 private:
  static constexpr size_t kReadSlabs = 2;   // one being filled, one being fetched
  static constexpr size_t kWriteSlabs = 3;  // one being drained, one being emptied, one between
  struct Slab {
    void* memory = nullptr;
    Dims begin{}, end{};
    HostWorker::Ticket ticket = 0;
  };
  struct Lane {
    HostTensor tensor;
    Packing packing;
    std::vector<Slab> slab;
    int64_t head = 0, tail = 0;  // boxes posted (given), boxes taken
    Slab& at(int64_t box) { return slab[static_cast<size_t>(box) % slab.size()]; }
    [[nodiscard]] FileTensor file() const { return {tensor.fd, tensor.offset, packing}; }
  };

  [[nodiscard]] bool Reaches(const HostTensor& tensor) const;
  [[nodiscard]] TensorView ViewOf(const Lane& lane, const Slab& slab) const;
  Event EventOf(Operand operand, int64_t box) const;

  Device& device_;
  CopyTeam team_;
  HostWorker reader_, writer_;
  std::array<Lane, kOperands> lanes_;
  // Fires when the device is done with a slab.
  std::array<std::array<OwnedEvent, kWriteSlabs>, kOperands> event_;
};

}  // namespace oocdnn
