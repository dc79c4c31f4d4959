// The convolution by its definition, on integers, where every order of sums gives the same.
#include "testing/fuzz_capi/case.hpp"

namespace oocdnn::fuzz_capi {
namespace {

using Index = std::array<int64_t, 3>;

class Elements {
 public:
  Elements(const oocdnn_tensor& tensor, std::vector<unsigned char> bytes)
      : tensor_(tensor), bytes_(std::move(bytes)) {}

  [[nodiscard]] double At(int64_t first, int64_t second, const Index& rest) const {
    const unsigned char* const place = bytes_.data() + PlaceOf(first, second, rest);
    return tensor_.dtype == OOCDNN_FLOAT64 ? Read<double>(place) : Read<float>(place);
  }
  void Put(int64_t first, int64_t second, const Index& rest, double value) {
    unsigned char* const place = bytes_.data() + PlaceOf(first, second, rest);
    const auto narrow = static_cast<float>(value);
    if (tensor_.dtype == OOCDNN_FLOAT64) {
      std::memcpy(place, &value, sizeof value);
    } else {
      std::memcpy(place, &narrow, sizeof narrow);
    }
  }
  [[nodiscard]] const oocdnn_tensor& tensor() const { return tensor_; }
  [[nodiscard]] const std::vector<unsigned char>& bytes() const { return bytes_; }
  // The extent of one of three spatial axes.
  [[nodiscard]] int64_t Extent(int s) const {
    const int axis = tensor_.rank - 3 + s;
    return axis < 2 ? 1 : tensor_.shape[axis];
  }

 private:
  template <class T>
  static double Read(const unsigned char* place) {
    T value{};
    std::memcpy(&value, place, sizeof value);
    return static_cast<double>(value);
  }
  [[nodiscard]] size_t PlaceOf(int64_t first, int64_t second, const Index& rest) const {
    int64_t at = first * tensor_.stride[0];
    if (tensor_.rank > 1) at += second * tensor_.stride[1];
    for (int s = 0; s < 3; ++s) {
      const int axis = tensor_.rank - 3 + s;
      if (axis >= 2) at += rest[static_cast<size_t>(s)] * tensor_.stride[axis];
    }
    return static_cast<size_t>(at) * (tensor_.dtype == OOCDNN_FLOAT64 ? 8 : 4);
  }

  oocdnn_tensor tensor_;
  std::vector<unsigned char> bytes_;
};

template <class Visit>
void ForEach(const Elements& over, const Visit& visit) {
  const oocdnn_tensor& tensor = over.tensor();
  for (int64_t a = 0; a < tensor.shape[0]; ++a) {
    for (int64_t b = 0; b < (tensor.rank > 1 ? tensor.shape[1] : 1); ++b) {
      Index at{};
      for (at[0] = 0; at[0] < over.Extent(0); ++at[0]) {
        for (at[1] = 0; at[1] < over.Extent(1); ++at[1]) {
          for (at[2] = 0; at[2] < over.Extent(2); ++at[2]) visit(a, b, at);
        }
      }
    }
  }
}

// Finds the input position of the tap `tap` of the output `out`; false in the padding.
bool Source(const oocdnn_convolution& call, const Elements& x, const Elements& w, const Index& out,
            const Index& tap, Index* in) {
  for (size_t s = 0; s < 3; ++s) {
    const auto axis = static_cast<int>(s);
    const bool spatial = axis >= 3 - call.rank;
    const int64_t t = call.mode == OOCDNN_CONVOLUTION ? w.Extent(axis) - 1 - tap[s] : tap[s];
    (*in)[s] = spatial ? out[s] * call.stride[s] + t * call.dilation[s] - call.pad_before[s] : 0;
    if ((*in)[s] < 0 || (*in)[s] >= x.Extent(axis)) return false;
  }
  return true;
}

}  // namespace

bool IsAsExpected(const Case& made) {
  const auto elements = [&](Operand operand) {
    return Elements(made.tensors[operand], made.blocks[operand].before());
  };
  const oocdnn_convolution& call = made.call;
  const Operand output = std::array{kY, kX, kW, kBias}[static_cast<size_t>(call.direction)];
  const Elements old = elements(output);
  Elements sums = old, result = old;
  ForEach(sums, [&](int64_t a, int64_t b, const Index& at) { sums.Put(a, b, at, 0.0); });
  const Elements y = elements(kY);
  const auto add = [&](int64_t a, int64_t b, const Index& at, double value) {
    sums.Put(a, b, at, sums.At(a, b, at) + value);
  };
  if (call.direction == OOCDNN_BACKWARD_BIAS) {
    ForEach(y, [&](int64_t n, int64_t k, const Index& at) { add(k, 0, {}, y.At(n, k, at)); });
  } else {
    const Elements x = elements(kX), w = elements(kW);
    const int64_t k_group = y.tensor().shape[1] / call.groups, c_group = w.tensor().shape[1];
    ForEach(y, [&](int64_t n, int64_t k, const Index& out) {
      for (int64_t c = 0; c < c_group; ++c) {
        Index tap{}, in{};
        const int64_t channel = k / k_group * c_group + c;
        for (tap[0] = 0; tap[0] < w.Extent(0); ++tap[0]) {
          for (tap[1] = 0; tap[1] < w.Extent(1); ++tap[1]) {
            for (tap[2] = 0; tap[2] < w.Extent(2); ++tap[2]) {
              if (!Source(call, x, w, out, tap, &in)) continue;
              if (output == kY) add(n, k, out, x.At(n, channel, in) * w.At(k, c, tap));
              if (output == kX) add(n, channel, in, y.At(n, k, out) * w.At(k, c, tap));
              if (output == kW) add(k, c, tap, x.At(n, channel, in) * y.At(n, k, out));
            }
          }
        }
      }
    });
  }
  const bool biased = made.used[kBias] && output != kBias;
  const Elements bias = biased ? elements(kBias) : old;
  ForEach(old, [&](int64_t a, int64_t b, const Index& at) {
    double value = call.alpha * sums.At(a, b, at);
    if (biased) value += bias.At(b, 0, {});
    if (call.beta != 0.0) value += call.beta * old.At(a, b, at);
    result.Put(a, b, at, value == 0.0 ? 0.0 : value);
  });
  // A zero may have either sign.
  const Elements seen(
      made.tensors[output],
      {made.blocks[output].data(), made.blocks[output].data() + made.blocks[output].bytes()});
  Elements gaps = seen;
  bool same = true;
  ForEach(old, [&](int64_t a, int64_t b, const Index& at) {
    same = same && seen.At(a, b, at) == result.At(a, b, at);
    gaps.Put(a, b, at, old.At(a, b, at));
  });
  Elements kept = old;
  ForEach(old,
          [&](int64_t a, int64_t b, const Index& at) { kept.Put(a, b, at, old.At(a, b, at)); });
  return same && gaps.bytes() == kept.bytes();
}

}  // namespace oocdnn::fuzz_capi
