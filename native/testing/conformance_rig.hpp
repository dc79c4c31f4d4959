// Rig: what a case needs around a device: streams, events, buffers and host arrays that are given
// back at the end, and whole tensors up and down.
#pragma once

#include <string>
#include <vector>

#include "testing/conformance.hpp"
#include "testing/tensors.hpp"

namespace oocdnn::testing {

// How a host array lies in memory. Gapped leaves unused elements between rows; mirrored has
// negative strides on the spatial dimensions.
enum class Memory : int { kDense = 0, kChannelsLast = 1, kGapped = 2, kMirrored = 3 };
constexpr int kMemories = 4;

// A strided tensor in host memory; every byte that is no element holds 0x5a.
struct Array {
  Dims dims{};
  TensorView view;
  char* memory = nullptr;
  int64_t bytes = 0;

  [[nodiscard]] int64_t Offset(const Dims& index) const;
  void Write(const Tensor& tensor) const;
  [[nodiscard]] Tensor Read() const;
  // Whether all bytes between the elements are as they were.
  [[nodiscard]] bool GapsIntact() const;
};

class Rig {
 public:
  explicit Rig(Device& device) : device_(device) {}
  ~Rig();  // waits for all streams first
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  [[nodiscard]] Device& device() const { return device_; }
  Result<Stream> NewStream(const char* name);
  Result<Event> NewEvent();
  Result<void*> NewBuffer(int64_t bytes);
  Result<Array> NewArray(const Dims& dims, DType dtype, Memory memory = Memory::kDense);
  // The stream of Upload, Download and of whoever needs just one.
  Result<Stream> MainStream();

  // Copies a whole tensor into or out of a tile, through an array of doubles, and waits.
  Status Upload(const Tensor& tensor, Operand operand, const TileLayout& layout, void* tile);
  Result<Tensor> Download(Operand operand, const TileLayout& layout, void* tile);
  // The tile's elements where they lie, if the host can see them, else like Download. All work on
  // the tile must be done.
  Result<Tensor> Read(Operand operand, const TileLayout& layout, void* tile);
  // A new buffer for a tile of this layout, filled with `tensor`.
  Result<void*> NewTile(const Tensor& tensor, Operand operand, const TileLayout& layout);

 private:
  struct Block {
    void* memory;
    int64_t bytes;
  };
  Device& device_;
  Stream main_ = nullptr;
  std::vector<Stream> streams_;
  std::vector<Event> events_;
  std::vector<Block> buffers_, host_;
};

// A transfer of the whole of `array` from or to a tile.
Transfer WholeTransfer(const Array& array, Operand operand, const TileLayout& layout, void* tile);

// "" where the tensors agree, else the first difference. A NaN equals any other NaN. With kBits,
// zeros of different sign differ.
enum class Equality : int { kValues = 0, kBits = 1 };
std::string FirstDifference(const Tensor& seen, const Tensor& wanted,
                            Equality equality = Equality::kValues);
std::string Text(const Dims& dims);

}  // namespace oocdnn::testing
