// The other GPUs whose memory a GPU reaches.
#pragma once

#include <map>

#include "device/cuda/primary_context.hpp"

namespace oocdnn::cuda {

class Peers {
 public:
  explicit Peers(const PrimaryContext& own) : own_(own) {}

  // The GPU with this ordinal, whose memory is reached from here on, and as long as this lives.
  // kInvalidProblem where it is the GPU itself, kUnsupported where there is none or its memory is
  // not reached.
  Result<const PrimaryContext*> Reach(int ordinal);

 private:
  const PrimaryContext& own_;
  std::map<int, PrimaryContext> reached_;  // by ordinal
};

}  // namespace oocdnn::cuda
