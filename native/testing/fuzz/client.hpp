// What the parts of the fuzzer share: a client of the drop-in's core as it serves without a GPU,
// its random numbers, its descriptors, and memory that every call may read and write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi/cudnn.h"
#include "abi/dropin.h"

namespace oocdnn::fuzz {

// splitmix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  size_t Below(size_t count) { return static_cast<size_t>(Next() % count); }
  bool Chance(int of_hundred) { return Below(100) < static_cast<size_t>(of_hundred); }
  // Small numbers mostly, else any, near powers of two and the ends.
  int64_t Integer(int64_t small = 9);
  int Int(int small = 9) { return static_cast<int>(Integer(small)); }

 private:
  uint64_t state_;
};

constexpr size_t kScratch = 1 << 20;    // bytes of what a call may write or read beside tensors
constexpr size_t kMostBytes = 1 << 16;  // of a tensor that is computed with
constexpr int64_t kMostElements = 512;

class Client {
 public:
  explicit Client(uint64_t seed);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The function of cuDNN's name. The process ends where there is none.
  OocFunction Find(const char* name) const;
  // Names the call that comes next.
  void Now(const char* name) { name_ = name; }
  // Ends the process, the seed and the call named, where a rule does not hold.
  void Expect(bool holds, const char* rule) const;
  void Say() const;
  // Every status is one that has a name.
  cudnnStatus_t Answered(cudnnStatus_t status);

  // Whether computing with it stays within Data().
  bool IsSmall(cudnnTensorDescriptor_t tensor);
  bool IsSmall(cudnnFilterDescriptor_t filter);

  // The middle of memory with room for a tensor's elements before and behind.
  [[nodiscard]] void* Data() { return data_.data() + 2 * kMostBytes + 64 * random.Below(8); }
  [[nodiscard]] void* Scratch() { return scratch_.data(); }

  Random random;
  uint64_t seed = 0;
  int64_t calls = 0, successes = 0, computed = 0;
  cudnnHandle_t handle = nullptr;
  std::array<cudnnTensorDescriptor_t, 12> tensors{};
  std::array<cudnnFilterDescriptor_t, 4> filters{};
  std::array<cudnnConvolutionDescriptor_t, 4> convolutions{};
  std::array<cudnnActivationDescriptor_t, 4> activations{};
  std::array<cudnnPoolingDescriptor_t, 4> poolings{};
  std::array<cudnnOpTensorDescriptor_t, 4> operations{};

 private:
  const OocServed* served_;
  const char* name_ = "";
  alignas(64) std::array<unsigned char, 4 * kMostBytes + 1024> data_;
  std::vector<std::max_align_t> scratch_;
};

// A function of cuDNN's by its declaration.
#define OOC_CUDNN(client, name) \
  (reinterpret_cast<decltype(&::name)>(((client).Now(#name), (client).Find(#name))))

// One random call, or the few of one convolution.
void CallLegacy(Client* client);
void CallConvolution(Client* client);

// The graph API.
class Graphs {
 public:
  explicit Graphs(Client* client) : client_(*client) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  void Call();
  // A graph of one convolution, from its tensors to its result.
  void Run();
  // One with numbers of any size, up to its graph.
  void Judge();

 private:
  using Descriptor = cudnnBackendDescriptor_t;
  Descriptor Any() { return pool_[client_.random.Below(pool_.size())]; }
  void Fill(cudnnBackendAttributeType_t type);
  void Replace();
  void Set();
  void Get();
  // A convolution's numbers; those of its window fit a filter of one element.
  struct Shape {
    std::array<int64_t, 4> x{}, w{}, y{};
    std::array<int64_t, 2> before{}, after{}, stride{1, 1}, dilation{1, 1};
    int dtype = 0;
  };
  Shape AnyShape();
  Descriptor Graph(const Shape& shape);
  void Forget();
  Descriptor Make(cudnnBackendDescriptorType_t type);
  Descriptor Tensor(int64_t uid, const std::array<int64_t, 4>& dims, int dtype);
  void SetOne(Descriptor in, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
              int64_t count, const void* elements);
  void SetNumbers(Descriptor in, cudnnBackendAttributeName_t name, int64_t count,
                  const int64_t* numbers);
  void SetPart(Descriptor in, cudnnBackendAttributeName_t name, Descriptor part);
  void Finish(Descriptor descriptor);

  Client& client_;
  std::array<Descriptor, 24> pool_{};
  std::vector<Descriptor> made_;
};

}  // namespace oocdnn::fuzz
