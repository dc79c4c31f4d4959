// OpenMP's threads, which oneDNN computes with: how many, and as a Parallel for our own loops.
//
// Loops next to oneDNN run on oneDNN's team, so that no second team competes for the cores with
// OpenMP threads that still spin.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/checked.hpp"
#include "base/status.hpp"
#include "device/cpu/engine.hpp"

// The three functions of OpenMP that are called; clang-tidy has no omp.h beside GCC's.
extern "C" {
int omp_get_max_threads();
int omp_get_thread_limit();
int omp_get_thread_num();
void omp_set_num_threads(int threads);
}

namespace oocdnn::cpu::onednn {

// Sets the size of the calling thread's teams while it lives. oneDNN lays a primitive out for the
// number it finds, and must find it again when the primitive runs.
class TeamSize {
 public:
  explicit TeamSize(int threads) : threads_(threads), before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~TeamSize() { omp_set_num_threads(before_); }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

  // Starts the calling thread's team. kDeviceError where the system does not have the threads:
  // OpenMP ends the process where it cannot start one, so they are tried first. Anything parallel
  // comes after this.
  [[nodiscard]] Status Start() const;

 private:
  const int threads_;
  const int before_;
};

class OpenMpTeam final : public Parallel {
 public:
  [[nodiscard]] int threads() const override { return omp_get_max_threads(); }
  void For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) override {
    const int64_t pieces = CeilDiv(count, std::max<int64_t>(grain, 1));
    if (pieces <= 1) {
      if (count > 0) fn(0, count);
      return;
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < pieces; ++i) fn(i * grain, std::min(count, (i + 1) * grain));
  }
};

}  // namespace oocdnn::cpu::onednn
