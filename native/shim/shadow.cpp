#include "shim/shadow.hpp"

#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/process_lock.hpp"

namespace oocdnn::shim {
namespace {

// Shards, so that threads that build plans do not wait for each other.
struct Kept {
  std::shared_ptr<Node> node;
  PlanPointer plan;
};
struct Shard {
  ProcessLock lock;
  std::unordered_map<cudnnBackendDescriptor_t, Kept> kept;
};
constexpr size_t kShards = 16;
constexpr size_t kGranule = 64;  // descriptors lie further apart than this

Shard& ShardOf(cudnnBackendDescriptor_t descriptor) {
  static auto* const shards = new std::array<Shard, kShards>;
  return (*shards)[reinterpret_cast<uintptr_t>(descriptor) / kGranule % kShards];
}

}  // namespace

void Put(cudnnBackendDescriptor_t descriptor, Node node) {
  auto shared = std::make_shared<Node>(std::move(node));
  Shard& shard = ShardOf(descriptor);
  const std::lock_guard turn(shard.lock);
  shard.kept[descriptor] = {std::move(shared), nullptr};
}

void Put(cudnnBackendDescriptor_t descriptor, PlanPointer plan) {
  Shard& shard = ShardOf(descriptor);
  const std::lock_guard turn(shard.lock);
  shard.kept[descriptor].plan = std::move(plan);
}

void Update(cudnnBackendDescriptor_t descriptor, const std::function<void(Node*)>& change) {
  Shard& shard = ShardOf(descriptor);
  const std::lock_guard turn(shard.lock);
  const auto found = shard.kept.find(descriptor);
  if (found == shard.kept.end()) return;
  std::shared_ptr<Node>& node = found->second.node;
  // Snapshots are taken with the lock held, so one that is held by nobody else stays so.
  if (node.use_count() > 1) node = std::make_shared<Node>(*node);
  change(node.get());
}

void Drop(cudnnBackendDescriptor_t descriptor) {
  Kept last;  // freed without the lock
  Shard& shard = ShardOf(descriptor);
  const std::lock_guard turn(shard.lock);
  const auto found = shard.kept.find(descriptor);
  if (found == shard.kept.end()) return;
  last = std::move(found->second);
  shard.kept.erase(found);
}

Shadow Look(cudnnBackendDescriptor_t descriptor) {
  Shard& shard = ShardOf(descriptor);
  const std::lock_guard turn(shard.lock);
  const auto found = shard.kept.find(descriptor);
  if (found == shard.kept.end()) return {};
  return {found->second.node, found->second.plan};
}

}  // namespace oocdnn::shim
