#include "model/search/relaxation.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"

namespace oocdnn {

// Corners that would make the rates grow are taken out again, so that rates only fall.
void Relaxation::AppendSteps(const WorkspaceOptions& front, int64_t kernel,
                             std::vector<Step>* steps) {
  const size_t first = steps->size();
  for (size_t i = 1; i < front.size(); ++i) {
    Step step{kernel, static_cast<int64_t>(i),
              front[i].workspace_bytes - front[i - 1].workspace_bytes,
              front[i - 1].seconds - front[i].seconds};
    while (steps->size() > first && steps->back().Rate() <= step.Rate()) {
      step.bytes += steps->back().bytes;
      step.saved += steps->back().saved;
      steps->pop_back();
    }
    steps->push_back(step);
  }
}

Relaxation::Relaxation(const std::vector<WorkspaceOptions>& fronts) {
  for (size_t k = 0; k < fronts.size(); ++k) {
    slowest_.push_back(fronts[k].front().seconds);
    AppendSteps(fronts[k], static_cast<int64_t>(k), &steps_);
  }
  // Stable, so that the steps of a kernel stay in order.
  std::stable_sort(steps_.begin(), steps_.end(),
                   [](const Step& a, const Step& b) { return a.Rate() > b.Rate(); });
  Sum();
}

void Relaxation::Sum() {
  bytes_.assign(1, 0);
  seconds_.assign(1, std::accumulate(slowest_.begin(), slowest_.end(), 0.0));
  for (const Step& step : steps_) {
    bytes_.push_back(Add(bytes_.back(), step.bytes));
    seconds_.push_back(seconds_.back() - step.saved);
  }
}

void Relaxation::Remove(int64_t kernel) {
  slowest_[kernel] = 0.0;
  std::erase_if(steps_, [&](const Step& step) { return step.kernel == kernel; });
  Sum();
}

int64_t Relaxation::Fitting(int64_t bytes) const {
  return std::upper_bound(bytes_.begin(), bytes_.end(), bytes) - bytes_.begin() - 1;
}

Relaxation::Bounds Relaxation::At(int64_t bytes) const {
  const int64_t n = Fitting(bytes);
  const double reached = seconds_[n];
  if (n == static_cast<int64_t>(steps_.size())) return {reached, reached};
  return {reached - steps_[n].Rate() * static_cast<double>(bytes - bytes_[n]), reached};
}

void Relaxation::Round(int64_t bytes, std::vector<int64_t>* options) const {
  const int64_t n = Fitting(bytes);
  for (int64_t i = 0; i < n; ++i) (*options)[steps_[i].kernel] = steps_[i].option;
}

}  // namespace oocdnn
