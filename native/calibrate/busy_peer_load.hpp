// BusyPeerLoad: continuous copies on another device of the host, while something is measured.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "memory/block.hpp"
#include "memory/owners.hpp"

namespace oocdnn {

class BusyPeerLoad {
 public:
  // Copies in both directions on a thread of its own, from before this returns until the
  // destructor. Fails as the device does.
  static Result<std::unique_ptr<BusyPeerLoad>> Start(std::unique_ptr<Device> device);
  ~BusyPeerLoad();
  BusyPeerLoad(const BusyPeerLoad&) = delete;
  BusyPeerLoad& operator=(const BusyPeerLoad&) = delete;

  // Returns true if every copy so far was enqueued.
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

  explicit BusyPeerLoad(std::unique_ptr<Device> device);
  Status Make();
  // Enqueues a copy in each direction after those of the previous turn; waits for those before
  // them.
  Status Turn();

  const std::unique_ptr<Device> device_;
  const TileLayout layout_;
  Way fetch_, drain_;
  size_t turn_ = 0;
  std::atomic<bool> copies_ = true, stop_ = false;
  std::thread thread_;
};

}  // namespace oocdnn
