// Boxes of a tensor in a file: read into and written from staging memory, in runs as long as the
// file's strides allow.
#pragma once

#include "device/device.hpp"

namespace oocdnn {

// Where the first element of a strided tensor lies in a file.
struct FileTensor {
  int fd = -1;
  int64_t offset = 0;  // bytes
  DType dtype = DType::kFloat32;
  Dims stride{};  // elements, positive, or negative (a mirrored filter)
};

// A packed copy of a box of `extent` elements keeps the file's order of dimensions, so that long
// runs stay long; a gap in the fastest dimension stays a gap.
struct PackedBox {
  Dims stride{};
  int64_t bytes = 0;
};
PackedBox PackedLayout(const FileTensor& file, const Dims& extent);

// Elements [begin, end) of the tensor from or to `memory`, laid out by PackedLayout(end - begin).
// kFileError names errno's text, the offset and the bytes.
Status ReadBox(const FileTensor& file, const Dims& begin, const Dims& end, void* memory);
Status WriteBox(const FileTensor& file, const Dims& begin, const Dims& end, const void* memory);

}  // namespace oocdnn
