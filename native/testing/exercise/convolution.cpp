// Draws sizes, fills arrays, runs and compares. The reference engine in one piece says what is
// right; that it is, other tests show.
#include "testing/exercise/convolution.hpp"

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <numeric>
#include <random>

#include "testing/exercise/exercise.hpp"

namespace oocdnn::exercise {
namespace {

// A file without a name, which is gone when it is closed.
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using TemporaryFile = std::unique_ptr<std::FILE, CloseFile>;

int64_t BytesOf(const std::vector<float>& values) {
  return static_cast<int64_t>(values.size() * sizeof(float));
}

}  // namespace

oocdnn_options SmallOptions() {
  oocdnn_options options = oocdnn_default_options();
  options.device = "cpu";
  options.budget = "64KiB";
  options.profile = "none";
  options.engine = "direct";
  options.threads = 2;
  return options;
}

OwnedContext Open(const oocdnn_options& options) {
  oocdnn_context* context = nullptr;
  oocdnn_create(&options, &context);
  return OwnedContext(context);
}

Convolution::Convolution(unsigned seed) {
  std::minstd_rand random(seed + 1);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random()) % (high - low + 1);
  };
  const auto direction = static_cast<int>(seed % 4);
  const auto rank = static_cast<int>(between(1, 3));
  const int64_t longest = rank == 1 ? 2000 : rank == 2 ? 48 : 14;
  call_ = oocdnn_default_convolution(direction, rank);
  call_.groups = between(1, 2);
  const int64_t k = call_.groups * between(2, 5), c = call_.groups * between(2, 5);
  const int64_t n = between(2, 4);
  arrays_[kX].shape = {n, c};
  arrays_[kW].shape = {k, c / call_.groups};
  arrays_[kY].shape = {n, k};
  arrays_[kBias].shape = {k};
  const bool windowed = direction != OOCDNN_BACKWARD_BIAS;
  for (int s = 3 - rank; s < 3; ++s) {
    const int64_t taps = windowed ? between(1, 3) : 1;
    const int64_t extent = between(longest / 2, longest);
    call_.stride[s] = windowed ? between(1, 2) : 1;
    call_.pad_before[s] = windowed ? between(0, 2) : 0;
    call_.pad_after[s] = windowed ? between(0, 2) : 0;
    arrays_[kX].shape.push_back(extent);
    arrays_[kW].shape.push_back(taps);
    const int64_t room = extent + call_.pad_before[s] + call_.pad_after[s] - taps;
    arrays_[kY].shape.push_back(room / call_.stride[s] + 1);
  }
  for (Array& array : arrays_) {
    array.values.resize(static_cast<size_t>(
        std::accumulate(array.shape.begin(), array.shape.end(), int64_t{1}, std::multiplies<>())));
    for (float& value : array.values) value = static_cast<float>(between(-3, 3));
  }
  output_ = std::array{kY, kX, kW, kBias}[static_cast<size_t>(direction)];
  oocdnn_options options = SmallOptions();
  options.engine = "reference";
  options.budget = "1GiB";
  const OwnedContext context = Open(options);
  std::vector<float> result(arrays_[output_].values.size());
  if (RunOn(context.get(), call_, InMemory(&result)) != OOCDNN_OK) {
    Fail("%s has no reference: %s", Text().c_str(), oocdnn_last_error());
  }
  expected_ = std::move(result);
}

oocdnn_tensor Convolution::Array::Tensor(float* data) const {
  return oocdnn_dense_tensor(OOCDNN_FLOAT32, static_cast<int32_t>(shape.size()), shape.data(),
                             data);
}

Convolution::Tensors Convolution::InMemory(std::vector<float>* output) const {
  Tensors tensors{};
  for (size_t i = 0; i < kOperands; ++i) {
    // The library only reads what is no output.
    auto* const data = const_cast<float*>(arrays_[i].values.data());
    tensors[i] = arrays_[i].Tensor(i == static_cast<size_t>(output_) ? output->data() : data);
  }
  return tensors;
}

oocdnn_operands Convolution::OperandsOf(const Tensors& tensors) const {
  oocdnn_operands operands{};
  const bool bias = output_ == kBias;
  operands.y = &tensors[kY];
  operands.x = bias ? nullptr : &tensors[kX];
  operands.w = bias ? nullptr : &tensors[kW];
  operands.bias = bias ? &tensors[kBias] : nullptr;
  return operands;
}

oocdnn_status Convolution::RunOn(oocdnn_context* context, const oocdnn_convolution& call,
                                 const Tensors& tensors) const {
  const oocdnn_operands operands = OperandsOf(tensors);
  return oocdnn_run(context, &call, &operands);
}

void Convolution::Compare(const std::vector<float>& result) const {
  if (result != expected_) Fail("%s: a wrong result", Text().c_str());
}

oocdnn_status Convolution::Run(oocdnn_context* context) const {
  std::vector<float> result(expected_.size(), -77.0f);
  const oocdnn_status status = RunOn(context, call_, InMemory(&result));
  if (status == OOCDNN_OK) Compare(result);
  return status;
}

oocdnn_status Convolution::RunInFiles(oocdnn_context* context) const {
  std::vector<float> result(expected_.size());
  Tensors tensors = InMemory(&result);
  std::array<TemporaryFile, kOperands> files;
  for (size_t i = 0; i < kOperands; ++i) {
    files[i].reset(std::tmpfile());
    const std::vector<float>& values = arrays_[i].values;
    tensors[i].fd = fileno(files[i].get());
    if (pwrite(tensors[i].fd, values.data(), values.size() * sizeof(float), 0) != BytesOf(values)) {
      Fail("%s: cannot write a file", Text().c_str());
    }
  }
  const oocdnn_status status = RunOn(context, call_, tensors);
  if (status != OOCDNN_OK) return status;
  const int fd = tensors[output_].fd;
  if (pread(fd, result.data(), result.size() * sizeof(float), 0) != BytesOf(result)) {
    Fail("%s: cannot read the result's file", Text().c_str());
  }
  Compare(result);
  return status;
}

oocdnn_status Convolution::Interrupt(oocdnn_context* context) const {
  oocdnn_convolution call = call_;
  call.progress = [](void*, int64_t, int64_t) { return 1; };
  std::vector<float> result(expected_.size());
  return RunOn(context, call, InMemory(&result));
}

std::string Convolution::Text() const {
  std::vector<float> result(arrays_[output_].values.size());
  const Tensors tensors = InMemory(&result);
  const oocdnn_operands operands = OperandsOf(tensors);
  const char* text = "";
  oocdnn_problem_text(&call_, &operands, &text);
  return text;
}

}  // namespace oocdnn::exercise
