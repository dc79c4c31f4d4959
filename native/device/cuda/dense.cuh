// Finishing passes of dense tiles, see DenseArgs: the common ones, in few instructions. They make
// what ooc_finish and ooc_pool_forward make, bit by bit.
#pragma once

#include "device/cuda/dense_work.cuh"

namespace oocdnn::cuda {

template <class Z, class Work, bool kSaves>
OOC_HOST_DEVICE void PoolForwardDense(const DenseArgs& args, const typename Work::Read& read,
                                      const Clip<float>& clip, unsigned number) {
  Vector<Z, Work::kPooled> made;
  unsigned bits = 0;
  OOC_UNROLL
  for (int m = 0; m < Work::kPooled; ++m) {
    const PooledOne<float> one = Work::Make(read, clip, m);
    made.at[m] = Convert<Z>(one.value);
    if (kSaves) bits |= one.code << m * args.bits;
  }
  StoreDense<Z, Work::kPooled>(made, number, args.z);
  if (!kSaves) return;
  unsigned char* const to = args.saved + static_cast<Long>(number) * args.bits;
  OOC_UNROLL
  for (int byte = 0; byte < 3; ++byte) {
    if (byte < args.bits) to[byte] = static_cast<unsigned char>(bits >> byte * 8);
  }
}

template <class In, class Z, int kMode, bool kAcross, bool kSaves>
OOC_HOST_DEVICE void DenseOf(const DenseArgs& args, unsigned own) {
  using Work = DenseWork<In, kMode, kAcross, kSaves>;
  constexpr int kInFlight = Work::kInFlight;
  const Clip<float> clip = Clip<float>::Of(args.activation, static_cast<float>(args.parameter));
  typename Work::Read read[kInFlight];
  if (kAcross) {
    unsigned rest = own;
    Work::LoadBias(args, Take(&rest, args.channels) * Work::kVector, &read[0]);
    OOC_UNROLL
    for (int i = 1; i < kInFlight; ++i) {
      OOC_UNROLL
      for (int b = 0; b < Work::kBias; ++b) read[i].bias[b] = read[0].bias[b];
    }
  }
  OOC_KEEP_ROLLED
  for (unsigned first = own; first < args.count; first += kInFlight * args.step) {
    OOC_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      const unsigned number = first + i * args.step;
      Work::Load(args, number < args.count ? number : first, &read[i]);
    }
    OOC_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      const unsigned number = first + i * args.step;
      if (number < args.count) PoolForwardDense<Z, Work, kSaves>(args, read[i], clip, number);
    }
  }
}

template <class In, class Z, bool kAcross, bool kSaves>
OOC_HOST_DEVICE void DenseOfKind(const DenseArgs& args, unsigned own) {
  switch (args.kind) {
    case kPoolForwardMax2: return DenseOf<In, Z, kMaxPool, kAcross, kSaves>(args, own);
    case kPoolForwardAverage2:
      if (!kSaves) DenseOf<In, Z, kAveragePool, kAcross, false>(args, own);
      return;
    default: return DenseOf<In, Z, kNoPool, kAcross, kSaves>(args, own);
  }
}

template <class In, class Z>
OOC_HOST_DEVICE void DenseTo(const DenseArgs& args, unsigned own) {
  if (args.order == kDenseAcross) return DenseOfKind<In, Z, true, false>(args, own);
  if (args.saved == nullptr) return DenseOfKind<In, Z, false, false>(args, own);
  DenseOfKind<In, Z, false, true>(args, own);
}

struct DensePass {
  template <class In, class Z>
  OOC_MEMBER static void Run(const DenseArgs& args, const Grid& grid) {
    OOC_THREADS(thread) {
      const unsigned own = grid.block * grid.threads + thread;
      if (own < args.step) DenseTo<In, Z>(args, own);
    }
  }
};

OOC_BODY void Dense(const DenseArgs& args, const Grid& grid) { DenseTyped<DensePass>(args, grid); }

}  // namespace oocdnn::cuda
