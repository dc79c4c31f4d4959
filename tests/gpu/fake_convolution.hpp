// The arithmetic of the fake cuDNN: a convolution over strided tensors, product by product.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "abi/cudnn_backend.h"
#include "base/dtype.hpp"

namespace fake {

// A tensor's extents and strides with three spatial axes.
struct View {
  int64_t dims[5], strides[5];
  int dtype;
  int64_t id;
};

// What a spatial axis of the convolution is: stride, dilation, padding before.
struct Spatial {
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {0, 0, 0};
};

// What becomes of sums on their way to y: a bias for each channel, and limits.
struct Epilogue {
  const float* bias = nullptr;
  bool cuts = false;
  double most = HUGE_VAL;
};

// One convolution; the output, which has no gaps, is 0: x, 1: w or 2: y.
struct Run {
  View x{}, w{}, y{};
  Spatial spatial;
  void* data[3] = {};
  int output = 2;
  double beta = 0, start = 0;  // output = start + sum of the products + beta * output
  Epilogue epilogue;           // of y
};

inline double Load(const void* memory, int64_t at, int dtype) {
  switch (dtype) {
    case CUDNN_DATA_DOUBLE: return static_cast<const double*>(memory)[at];
    case CUDNN_DATA_HALF: return ToFloat(static_cast<const oocdnn::Float16*>(memory)[at]);
    case CUDNN_DATA_BFLOAT16: return ToFloat(static_cast<const oocdnn::BFloat16*>(memory)[at]);
    default: return static_cast<const float*>(memory)[at];
  }
}

inline void Store(void* memory, int64_t at, int dtype, double value) {
  switch (dtype) {
    case CUDNN_DATA_DOUBLE: static_cast<double*>(memory)[at] = value; break;
    case CUDNN_DATA_HALF:
      static_cast<oocdnn::Float16*>(memory)[at] = oocdnn::ToFloat16(static_cast<float>(value));
      break;
    case CUDNN_DATA_BFLOAT16:
      static_cast<oocdnn::BFloat16*>(memory)[at] = oocdnn::ToBFloat16(static_cast<float>(value));
      break;
    default: static_cast<float*>(memory)[at] = static_cast<float>(value);
  }
}

// Calls visit(offsets in x, w and y) for every product of the convolution.
template <class Visit>
void ForEachProduct(const Run& run, const Visit& visit) {
  const View &x = run.x, &w = run.w, &y = run.y;
  const int64_t groups = x.dims[1] / w.dims[1], per_group = w.dims[0] / groups;
  const auto tap = [&](const int64_t (&out)[3], const int64_t (&r)[3], int64_t* offset) {
    for (int d = 0; d < 3; ++d) {
      const int64_t in =
          out[d] * run.spatial.stride[d] + r[d] * run.spatial.dilation[d] - run.spatial.pad[d];
      if (in < 0 || in >= x.dims[2 + d]) return false;
      *offset += in * x.strides[2 + d];
    }
    return true;
  };
  int64_t out[3], r[3];
  for (out[0] = 0; out[0] < y.dims[2]; ++out[0])
    for (out[1] = 0; out[1] < y.dims[3]; ++out[1])
      for (out[2] = 0; out[2] < y.dims[4]; ++out[2])
        for (r[0] = 0; r[0] < w.dims[2]; ++r[0])
          for (r[1] = 0; r[1] < w.dims[3]; ++r[1])
            for (r[2] = 0; r[2] < w.dims[4]; ++r[2]) {
              int64_t xs = 0, ws = 0, ys = 0;
              if (!tap(out, r, &xs)) continue;
              for (int d = 0; d < 3; ++d) {
                ws += r[d] * w.strides[2 + d];
                ys += out[d] * y.strides[2 + d];
              }
              for (int64_t n = 0; n < y.dims[0]; ++n)
                for (int64_t k = 0; k < y.dims[1]; ++k)
                  for (int64_t c = 0; c < w.dims[1]; ++c) {
                    const int64_t channel = k / per_group * w.dims[1] + c;
                    visit(n * x.strides[0] + channel * x.strides[1] + xs,
                          k * w.strides[0] + c * w.strides[1] + ws,
                          n * y.strides[0] + k * y.strides[1] + ys);
                  }
            }
}

inline double Finished(const Epilogue& epilogue, int64_t channel, double sum) {
  if (epilogue.bias != nullptr) sum += static_cast<double>(epilogue.bias[channel]);
  return epilogue.cuts && sum == sum ? std::min(std::max(sum, 0.0), epilogue.most) : sum;
}

// Of y, by the offsets of its elements.
inline void Finish(const Run& run, std::vector<double>* sums) {
  const View& y = run.y;
  for (int64_t n = 0; n < y.dims[0]; ++n)
    for (int64_t k = 0; k < y.dims[1]; ++k)
      for (int64_t d = 0; d < y.dims[2]; ++d)
        for (int64_t h = 0; h < y.dims[3]; ++h)
          for (int64_t w = 0; w < y.dims[4]; ++w) {
            const int64_t at = n * y.strides[0] + k * y.strides[1] + d * y.strides[2] +
                               h * y.strides[3] + w * y.strides[4];
            double& sum = (*sums)[static_cast<size_t>(at)];
            sum = Finished(run.epilogue, k, sum);
          }
}

inline void Convolve(const Run& run) {
  const View* const views[] = {&run.x, &run.w, &run.y};
  const View& out = *views[run.output];
  const int first = run.output == 0 ? 1 : 0, second = run.output == 2 ? 1 : 2;
  int64_t elements = 1;
  for (const int64_t dim : out.dims) elements *= dim;
  std::vector<double> sums(static_cast<size_t>(elements), run.start);
  ForEachProduct(run, [&](int64_t x, int64_t w, int64_t y) {
    const int64_t at[] = {x, w, y};
    sums[static_cast<size_t>(at[run.output])] +=
        Load(run.data[first], at[first], views[first]->dtype) *
        Load(run.data[second], at[second], views[second]->dtype);
  });
  if (run.epilogue.bias != nullptr || run.epilogue.cuts) Finish(run, &sums);
  void* const target = run.data[run.output];
  for (int64_t at = 0; at < elements; ++at) {
    const double old = run.beta == 0.0 ? 0.0 : run.beta * Load(target, at, out.dtype);
    Store(target, at, out.dtype, sums[static_cast<size_t>(at)] + old);
  }
}

}  // namespace fake
