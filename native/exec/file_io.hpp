// Boxes of a tensor in a file: read into and written from staging memory, in runs as long as the
// file's strides allow.
#pragma once

#include "exec/packed_box.hpp"

namespace oocdnn {

// Where the first element of a strided tensor lies in a file, and how its boxes are packed.
struct FileTensor {
  int fd = -1;
  int64_t offset = 0;  // bytes
  Packing packing;     // strides are positive, or negative (a mirrored filter)
};

// Elements [begin, end) of the tensor from or to `memory`, laid out by PackedLayout(end - begin).
// kFileError names errno's text, the offset and the bytes.
Status ReadBox(const FileTensor& file, const Dims& begin, const Dims& end, void* memory);
Status WriteBox(const FileTensor& file, const Dims& begin, const Dims& end, const void* memory);

}  // namespace oocdnn
