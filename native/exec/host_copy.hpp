// Boxes of a tensor in pageable memory: copied to and from staging memory by a team of threads.
#pragma once

#include "exec/copy_team.hpp"
#include "exec/packed_box.hpp"

namespace oocdnn {

// Elements [begin, end) of the tensor whose first element is at `data` to or from `memory`, laid
// out by PackedLayout(end - begin). `stays`: the memory is so little that it is still in the caches
// when it is read.
void PackBox(CopyTeam& team, const void* data, const Packing& packing, const Dims& begin,
             const Dims& end, void* memory, bool stays);
void UnpackBox(CopyTeam& team, void* data, const Packing& packing, const Dims& begin,
               const Dims& end, const void* memory);

}  // namespace oocdnn
