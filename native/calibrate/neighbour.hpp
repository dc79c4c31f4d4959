// Neighbour: another device of the host that copies all the time, for what is measured beside it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "memory/block.hpp"
#include "memory/owners.hpp"

namespace oocdnn {

class Neighbour {
 public:
  // Copies in both directions from before this returns until the object ends, by a thread of its
  // own. Fails as the device does.
  static Result<std::unique_ptr<Neighbour>> Start(std::unique_ptr<Device> device);
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  // Whether every copy so far could be enqueued.
  [[nodiscard]] bool copies() const { return copies_; }

 private:
  // One direction: memory of both sides, and the ends of the last two copies.
  struct Way {
    explicit Way(Device& device);
    Status Make(Device& device, const char* name);
    const Block host, tile;
    OwnedStream stream;
    std::array<OwnedEvent, 2> ended;
  };

  explicit Neighbour(std::unique_ptr<Device> device);
  Status Make();
  // A copy in each direction, behind those of the turn before; waits for those of two turns before.
  Status Turn();

  const std::unique_ptr<Device> device_;
  const TileLayout layout_;
  Way fetch_, drain_;
  size_t turn_ = 0;
  std::atomic<bool> copies_ = true, stop_ = false;
  std::thread thread_;
};

}  // namespace oocdnn
