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

#define OOC_KERNEL_FILE(name) OOCDNN_NATIVE_DIR "/device/cuda/" name

OOC_EMBED(ooc_file_kernels, ".rodata", OOC_KERNEL_FILE("kernels.cu"))
OOC_EMBED(ooc_file_element, ".rodata", OOCDNN_NATIVE_DIR "/geom/element.h")
OOC_EMBED(ooc_file_activation, ".rodata", OOCDNN_NATIVE_DIR "/geom/activation.h")
OOC_EMBED(ooc_file_moments, ".rodata", OOCDNN_NATIVE_DIR "/geom/moments.h")
OOC_EMBED(ooc_file_kernel_args, ".rodata", OOC_KERNEL_FILE("kernel_args.h"))
OOC_EMBED(ooc_file_platform, ".rodata", OOC_KERNEL_FILE("platform.cuh"))
OOC_EMBED(ooc_file_convert, ".rodata", OOC_KERNEL_FILE("convert.cuh"))
OOC_EMBED(ooc_file_copy, ".rodata", OOC_KERNEL_FILE("copy.cuh"))
OOC_EMBED(ooc_file_finish, ".rodata", OOC_KERNEL_FILE("finish.cuh"))
OOC_EMBED(ooc_file_fp32x3, ".rodata", OOC_KERNEL_FILE("fp32x3.cuh"))
OOC_EMBED(ooc_file_fp32x3_mma, ".rodata", OOC_KERNEL_FILE("fp32x3_mma.cuh"))
OOC_EMBED(ooc_file_fp32x3_tile, ".rodata", OOC_KERNEL_FILE("fp32x3_tile.cuh"))
OOC_EMBED(ooc_file_fp32x3_wgmma, ".rodata", OOC_KERNEL_FILE("fp32x3_wgmma.cuh"))
OOC_EMBED(ooc_file_shares, ".rodata", OOC_KERNEL_FILE("shares.cuh"))
OOC_EMBED(ooc_file_pool_forward_one, ".rodata", OOC_KERNEL_FILE("pool_forward_one.cuh"))
OOC_EMBED(ooc_file_pool_forward, ".rodata", OOC_KERNEL_FILE("pool_forward.cuh"))
OOC_EMBED(ooc_file_dense_work, ".rodata", OOC_KERNEL_FILE("dense_work.cuh"))
OOC_EMBED(ooc_file_dense_planes, ".rodata", OOC_KERNEL_FILE("dense_planes.cuh"))
OOC_EMBED(ooc_file_dense, ".rodata", OOC_KERNEL_FILE("dense.cuh"))
OOC_EMBED(ooc_file_norm, ".rodata", OOC_KERNEL_FILE("norm.cuh"))
OOC_EMBED(ooc_file_pool_backward_one, ".rodata", OOC_KERNEL_FILE("pool_backward_one.cuh"))
OOC_EMBED(ooc_file_pool_backward_patch, ".rodata", OOC_KERNEL_FILE("pool_backward_patch.cuh"))
OOC_EMBED(ooc_file_pool_backward, ".rodata", OOC_KERNEL_FILE("pool_backward.cuh"))
OOC_EMBED(ooc_file_direct, ".rodata", OOC_KERNEL_FILE("direct.cuh"))
OOC_EMBED(ooc_file_depthwise_stage, ".rodata", OOC_KERNEL_FILE("depthwise_stage.cuh"))
OOC_EMBED(ooc_file_depthwise, ".rodata", OOC_KERNEL_FILE("depthwise.cuh"))
OOC_EMBED(ooc_file_depthwise_filter, ".rodata", OOC_KERNEL_FILE("depthwise_filter.cuh"))
OOC_EMBED(ooc_file_bias, ".rodata", OOC_KERNEL_FILE("bias.cuh"))
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
  static const std::array<EmbeddedFile, 28> files{{
      {"device/cuda/kernels.cu", Between(ooc_file_kernels, ooc_file_kernels_end)},
      {"geom/element.h", Between(ooc_file_element, ooc_file_element_end)},
      {"geom/activation.h", Between(ooc_file_activation, ooc_file_activation_end)},
      {"geom/moments.h", Between(ooc_file_moments, ooc_file_moments_end)},
      {"device/cuda/kernel_args.h", Between(ooc_file_kernel_args, ooc_file_kernel_args_end)},
      {"device/cuda/platform.cuh", Between(ooc_file_platform, ooc_file_platform_end)},
      {"device/cuda/convert.cuh", Between(ooc_file_convert, ooc_file_convert_end)},
      {"device/cuda/copy.cuh", Between(ooc_file_copy, ooc_file_copy_end)},
      {"device/cuda/finish.cuh", Between(ooc_file_finish, ooc_file_finish_end)},
      {"device/cuda/fp32x3.cuh", Between(ooc_file_fp32x3, ooc_file_fp32x3_end)},
      {"device/cuda/fp32x3_mma.cuh", Between(ooc_file_fp32x3_mma, ooc_file_fp32x3_mma_end)},
      {"device/cuda/fp32x3_tile.cuh", Between(ooc_file_fp32x3_tile, ooc_file_fp32x3_tile_end)},
      {"device/cuda/fp32x3_wgmma.cuh", Between(ooc_file_fp32x3_wgmma, ooc_file_fp32x3_wgmma_end)},
      {"device/cuda/shares.cuh", Between(ooc_file_shares, ooc_file_shares_end)},
      {"device/cuda/pool_forward_one.cuh",
       Between(ooc_file_pool_forward_one, ooc_file_pool_forward_one_end)},
      {"device/cuda/pool_forward.cuh", Between(ooc_file_pool_forward, ooc_file_pool_forward_end)},
      {"device/cuda/dense_work.cuh", Between(ooc_file_dense_work, ooc_file_dense_work_end)},
      {"device/cuda/dense_planes.cuh", Between(ooc_file_dense_planes, ooc_file_dense_planes_end)},
      {"device/cuda/dense.cuh", Between(ooc_file_dense, ooc_file_dense_end)},
      {"device/cuda/norm.cuh", Between(ooc_file_norm, ooc_file_norm_end)},
      {"device/cuda/pool_backward_one.cuh",
       Between(ooc_file_pool_backward_one, ooc_file_pool_backward_one_end)},
      {"device/cuda/pool_backward_patch.cuh",
       Between(ooc_file_pool_backward_patch, ooc_file_pool_backward_patch_end)},
      {"device/cuda/pool_backward.cuh",
       Between(ooc_file_pool_backward, ooc_file_pool_backward_end)},
      {"device/cuda/direct.cuh", Between(ooc_file_direct, ooc_file_direct_end)},
      {"device/cuda/depthwise_stage.cuh",
       Between(ooc_file_depthwise_stage, ooc_file_depthwise_stage_end)},
      {"device/cuda/depthwise.cuh", Between(ooc_file_depthwise, ooc_file_depthwise_end)},
      {"device/cuda/depthwise_filter.cuh",
       Between(ooc_file_depthwise_filter, ooc_file_depthwise_filter_end)},
      {"device/cuda/bias.cuh", Between(ooc_file_bias, ooc_file_bias_end)},
  }};
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
