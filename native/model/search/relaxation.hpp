// The linear relaxation of a workspace division: what kernels could reach if their options could be
// mixed. It bounds every division from below, and rounding it gives a division that fits.
#pragma once

#include <cstdint>
#include <vector>

#include "model/search/workspace.hpp"

namespace oocdnn {

// The options of each kernel must be a Pareto front, least bytes first. Bytes here are those beyond
// the least of each kernel.
class Relaxation {
 public:
  explicit Relaxation(const std::vector<WorkspaceOptions>& fronts);

  struct Bounds {
    double least = 0.0;    // no division of these bytes takes fewer seconds
    double reached = 0.0;  // by the division of Round
  };
  [[nodiscard]] Bounds At(int64_t bytes) const;
  // Sets the entries of the kernels that are left to options of no more than `bytes` in all.
  void Round(int64_t bytes, std::vector<int64_t>* options) const;

  // Leaves a kernel out from now on.
  void Remove(int64_t kernel);

 private:
  // From one corner of a kernel's lower convex hull to the next.
  struct Step {
    int64_t kernel = 0, option = 0;  // the option reached
    int64_t bytes = 0;
    double saved = 0.0;  // seconds
    [[nodiscard]] double Rate() const { return saved / static_cast<double>(bytes); }
  };
  static void AppendSteps(const WorkspaceOptions& front, int64_t kernel, std::vector<Step>* steps);
  void Sum();
  // How many of the steps fit.
  [[nodiscard]] int64_t Fitting(int64_t bytes) const;

  std::vector<double> slowest_;  // seconds of each kernel's least bytes, 0 of those removed
  std::vector<Step> steps_;      // the best rate first
  std::vector<int64_t> bytes_;   // of the first n steps
  std::vector<double> seconds_;  // after the first n steps
};

}  // namespace oocdnn
