// Puts files into the library as they are. The build gives OOCDNN_NATIVE_DIR, and
// OOCDNN_KERNEL_FATBIN where there is one.
#include "device/cuda/embedded.hpp"

#include <array>

#define OOC_EMBED(symbol, section, file)                                \
  asm(".pushsection " section                                           \
      "\n"                                                              \
      ".balign 16\n"                                                    \
      ".hidden " #symbol "\n.hidden " #symbol "_end\n" #symbol          \
      ":\n"                                                             \
      ".incbin \"" file "\"\n" #symbol                                  \
      "_end:\n"                                                         \
      ".byte 0\n"                                                       \
      ".popsection\n");                                                 \
  extern "C" const char symbol[] __attribute__((visibility("hidden"))); \
  extern "C" const char symbol##_end[] __attribute__((visibility("hidden")));

// The sources of the kernels: a name for the symbols, and the path that they are included by.
#define OOC_KERNEL_FILES(FILE)                                     \
  FILE(kernels, "device/cuda/kernels.cu")                          \
  FILE(element, "geom/element.h")                                  \
  FILE(activation, "geom/activation.h")                            \
  FILE(moments, "geom/moments.h")                                  \
  FILE(kernel_args, "device/cuda/kernel_args.h")                   \
  FILE(platform, "device/cuda/platform.cuh")                       \
  FILE(convert, "device/cuda/convert.cuh")                         \
  FILE(copy, "device/cuda/copy.cuh")                               \
  FILE(finish, "device/cuda/finish.cuh")                           \
  FILE(fp32x3, "device/cuda/fp32x3.cuh")                           \
  FILE(fp32x3_mma, "device/cuda/fp32x3_mma.cuh")                   \
  FILE(fp32x3_tile, "device/cuda/fp32x3_tile.cuh")                 \
  FILE(fp32x3_wgmma, "device/cuda/fp32x3_wgmma.cuh")               \
  FILE(shares, "device/cuda/shares.cuh")                           \
  FILE(pool_forward_one, "device/cuda/pool_forward_one.cuh")       \
  FILE(pool_forward, "device/cuda/pool_forward.cuh")               \
  FILE(dense_work, "device/cuda/dense_work.cuh")                   \
  FILE(dense_planes, "device/cuda/dense_planes.cuh")               \
  FILE(dense, "device/cuda/dense.cuh")                             \
  FILE(norm, "device/cuda/norm.cuh")                               \
  FILE(pool_backward_one, "device/cuda/pool_backward_one.cuh")     \
  FILE(pool_backward_patch, "device/cuda/pool_backward_patch.cuh") \
  FILE(pool_backward, "device/cuda/pool_backward.cuh")             \
  FILE(direct, "device/cuda/direct.cuh")                           \
  FILE(depthwise_stage, "device/cuda/depthwise_stage.cuh")         \
  FILE(depthwise, "device/cuda/depthwise.cuh")                     \
  FILE(depthwise_filter, "device/cuda/depthwise_filter.cuh")       \
  FILE(bias, "device/cuda/bias.cuh")

#define OOC_EMBED_FILE(name, path) OOC_EMBED(ooc_file_##name, ".rodata", OOCDNN_NATIVE_DIR "/" path)
#define OOC_LIST_FILE(name, path) \
  EmbeddedFile{path, Between(ooc_file_##name, ooc_file_##name##_end)},

OOC_KERNEL_FILES(OOC_EMBED_FILE)
#ifdef OOCDNN_KERNEL_FATBIN
// Where cuobjdump looks.
OOC_EMBED(ooc_file_fatbin, ".nv_fatbin, \"a\", @progbits", OOCDNN_KERNEL_FATBIN)
#endif

namespace oocdnn::cuda {
namespace {

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::span<const EmbeddedFile> KernelSources() {
  static const std::array files{OOC_KERNEL_FILES(OOC_LIST_FILE)};
  return files;
}

std::string_view KernelFatBinary() {
#ifdef OOCDNN_KERNEL_FATBIN
  return Between(ooc_file_fatbin, ooc_file_fatbin_end);
#else
  return {};
#endif
}

const char* KernelTargets() {
#ifdef OOCDNN_KERNEL_FATBIN
  return OOCDNN_KERNEL_TARGETS;
#else
  return "";
#endif
}

}  // namespace oocdnn::cuda
