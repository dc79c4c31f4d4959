#include "testing/fuzz_capi/case.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace oocdnn::fuzz_capi {
namespace {

using Members = std::array<const oocdnn_tensor * oocdnn_operands::*, kOperands>;
constexpr Members kMembers{
    &oocdnn_operands::x,    &oocdnn_operands::w,     &oocdnn_operands::y,
    &oocdnn_operands::bias, &oocdnn_operands::scale, &oocdnn_operands::residual,
    &oocdnn_operands::z,    &oocdnn_operands::saved, &oocdnn_operands::input,
    &oocdnn_operands::dw,   &oocdnn_operands::db,    &oocdnn_operands::prologue,
    &oocdnn_operands::sums};

size_t SizeOf(int32_t dtype) {
  switch (dtype) {
    case OOCDNN_FLOAT32: return 4;
    case OOCDNN_FLOAT64: return 8;
    case OOCDNN_FLOAT16:
    case OOCDNN_BFLOAT16: return 2;
    default: return 1;
  }
}

// Bytes of a tensor from its first element on; kMostBytes + 1 where they are too many.
int64_t BytesOf(const oocdnn_tensor& tensor) {
  __extension__ using Wide = __int128;
  Wide last = 0;
  for (int32_t axis = 0; axis < std::clamp(tensor.rank, 0, 5); ++axis) {
    if (tensor.shape[axis] <= 0) return 0;
    if (tensor.stride[axis] < 0) continue;
    last += static_cast<Wide>(tensor.shape[axis] - 1) * tensor.stride[axis];
    if (last > kMostBytes) return kMostBytes + 1;
  }
  const Wide bytes = (last + 1) * static_cast<Wide>(SizeOf(tensor.dtype));
  return bytes > kMostBytes ? kMostBytes + 1 : static_cast<int64_t>(bytes);
}

bool IsBackward(const oocdnn_convolution& call) { return call.direction != OOCDNN_FORWARD; }

double DrawNumber(Random* random) {
  constexpr double kNumbers[] = {0.0,
                                 1.0,
                                 -1.0,
                                 2.0,
                                 0.5,
                                 -0.0,
                                 1e-310,
                                 1e300,
                                 std::numeric_limits<double>::max(),
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()};
  return kNumbers[random->Below(std::size(kNumbers))];
}

void DrawPool(Random* random, Sizes* sizes, oocdnn_pool* pool) {
  pool->mode = static_cast<int32_t>(random->Between(1, 3));
  pool->ceil = random->Chance(20) ? 1 : 0;
  for (auto s = static_cast<size_t>(3 - sizes->rank); s < 3; ++s) {
    pool->window[s] = random->Between(1, std::min<int64_t>(3, sizes->out[s]));
    pool->stride[s] = random->Between(1, 3);
    pool->pad_before[s] = random->Between(0, pool->window[s] - 1);
    pool->pad_after[s] = random->Between(0, pool->window[s] - 1);
    const int64_t room = sizes->out[s] + pool->pad_before[s] + pool->pad_after[s] - pool->window[s];
    sizes->pooled[s] = room / pool->stride[s] + 1;
    const bool over = room % pool->stride[s] != 0;
    const bool begins = sizes->pooled[s] * pool->stride[s] < sizes->out[s] + pool->pad_before[s];
    if (pool->ceil != 0 && over && begins) ++sizes->pooled[s];
  }
}

}  // namespace

void Block::Allocate(Random* random, int32_t dtype, size_t bytes, size_t shift) {
  memory_.reset(static_cast<unsigned char*>(std::malloc(bytes + shift)));
  bytes_ = bytes;
  shift_ = shift;
  const size_t step = SizeOf(dtype);
  for (size_t at = 0; at + step <= bytes; at += step) {
    const auto number = static_cast<float>(random->Between(-3, 3));
    const auto wide = static_cast<double>(number);
    uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    // The upper half of a float32 is a bfloat16, and a positive float16.
    const auto half = static_cast<uint16_t>(bits >> 16U);
    const void* const from = step == 8   ? static_cast<const void*>(&wide)
                             : step == 4 ? static_cast<const void*>(&number)
                                         : static_cast<const void*>(&half);
    std::memcpy(data() + at, from, step);
  }
  before_.clear();
}

Case::~Case() {
  for (const int file : files) {
    if (file >= 0) close(file);
  }
}

void Case::Connect() {
  for (size_t i = 0; i < kOperands; ++i) {
    operands.*kMembers[i] = used[i] ? &tensors[i] : nullptr;
  }
}

int32_t DrawDtype(Random* random) {
  return static_cast<int32_t>(random->Chance(60) ? random->Below(2) : random->Below(4));
}

Sizes DrawSizes(Random* random, const Sizes* from, oocdnn_convolution* call, int direction) {
  Sizes sizes;
  sizes.rank = from != nullptr ? from->rank : static_cast<int>(random->Between(1, 3));
  *call = oocdnn_default_convolution(direction, sizes.rank);
  sizes.n = from != nullptr ? from->n : random->Between(1, 3);
  sizes.c = from != nullptr ? from->k : random->Between(1, 4);
  sizes.groups = random->Chance(25) && sizes.c % 2 == 0 ? 2 : 1;
  sizes.k = sizes.groups * random->Between(1, 3);
  call->groups = sizes.groups;
  const bool bias = direction == OOCDNN_BACKWARD_BIAS;
  for (auto s = static_cast<size_t>(3 - sizes.rank); s < 3; ++s) {
    const bool pools = from != nullptr && from->pooled[s] > 0;
    sizes.in[s] = pools ? from->pooled[s] : random->Between(1, sizes.rank == 1 ? 12 : 5);
    sizes.filter[s] = bias ? 1 : random->Between(1, 3);
    if (!bias) {
      call->stride[s] = random->Chance(70) ? 1 : random->Between(1, 3);
      call->dilation[s] = random->Chance(80) ? 1 : 2;
      call->pad_before[s] = random->Between(0, 2);
      call->pad_after[s] = random->Between(0, 2);
    }
    const int64_t reach = call->dilation[s] * (sizes.filter[s] - 1) + 1;
    const int64_t missing = reach - sizes.in[s] - call->pad_before[s] - call->pad_after[s];
    if (missing > 0) call->pad_after[s] += missing;
    const int64_t room = sizes.in[s] + call->pad_before[s] + call->pad_after[s] - reach;
    sizes.out[s] = sizes.pooled[s] = room / call->stride[s] + 1;
  }
  call->mode = random->Chance(20) ? OOCDNN_CONVOLUTION : OOCDNN_CROSS_CORRELATION;
  if (random->Chance(direction == OOCDNN_FORWARD ? 20 : 5)) DrawPool(random, &sizes, &call->pool);
  if (random->Chance(20)) {
    call->activation = static_cast<int32_t>(random->Between(1, 6));
    call->activation_parameter = 1.0;
  }
  return sizes;
}

std::vector<int64_t> ShapeOf(Operand operand, const Sizes& sizes, const oocdnn_convolution& call) {
  const auto spatial = [&](std::vector<int64_t> shape, const std::array<int64_t, 3>& extents) {
    shape.insert(shape.end(), extents.end() - sizes.rank, extents.end());
    return shape;
  };
  const bool down = call.direction == OOCDNN_BACKWARD_DATA;
  switch (operand) {
    case kX:
    case kInput: return spatial({sizes.n, sizes.c}, sizes.in);
    case kW:
    case kDw: return spatial({sizes.k, sizes.c / sizes.groups}, sizes.filter);
    case kY: return spatial({sizes.n, sizes.k}, sizes.out);
    case kZ: return spatial({sizes.n, sizes.k}, call.pool.mode != 0 ? sizes.pooled : sizes.out);
    case kResidual:
      return down ? spatial({sizes.n, sizes.c}, sizes.in) : spatial({sizes.n, sizes.k}, sizes.out);
    case kBias:
    case kScale: return {down ? sizes.c : sizes.k};
    case kDb: return {sizes.k};
    case kPrologue: return {sizes.n, down ? sizes.k : sizes.c, 2};
    case kSums: return {sizes.n, down ? sizes.c : sizes.k, 5};
    default: return {0};
  }
}

void SetTensor(Random* random, int32_t dtype, const std::vector<int64_t>& shape, bool dense,
               oocdnn_tensor* tensor) {
  *tensor = oocdnn_dense_tensor(dtype, static_cast<int32_t>(shape.size()), shape.data(), nullptr);
  if (dense) return;
  std::array<size_t, 5> order{0, 1, 2, 3, 4};
  const size_t rank = shape.size();
  for (size_t i = rank; i > 1; --i) std::swap(order[i - 1], order[random->Below(i)]);
  int64_t step = random->Chance(30) ? 2 : 1;
  for (size_t i = 0; i < rank; ++i) {
    tensor->stride[order[i]] = step;
    step = step * std::max<int64_t>(shape[order[i]], 1) + (random->Chance(20) ? 3 : 0);
  }
}

void BreakCall(Random* random, oocdnn_convolution* call) {
  const auto spatial = [&](int64_t* values) { values[random->Below(3)] = random->Integer(); };
  switch (random->Below(22)) {
    case 0: call->direction = random->Int(4); break;
    case 1: call->rank = random->Int(4); break;
    case 2: spatial(call->pad_before); break;
    case 3: spatial(call->pad_after); break;
    case 4: spatial(call->stride); break;
    case 5: spatial(call->dilation); break;
    case 6: call->groups = random->Integer(); break;
    case 7: call->mode = random->Int(3); break;
    case 8: call->math = random->Int(3); break;
    case 9: call->alpha = DrawNumber(random); break;
    case 10: call->beta = DrawNumber(random); break;
    case 11: call->activation = random->Int(8); break;
    case 12: call->saves = random->Int(3); break;
    case 13: call->activation_parameter = DrawNumber(random); break;
    case 14: call->residual_alpha = DrawNumber(random); break;
    case 15: call->pool.mode = random->Int(5); break;
    case 16: call->pool.ceil = random->Int(3); break;
    case 17: spatial(random->Chance(50) ? call->pool.window : call->pool.stride); break;
    case 18: spatial(random->Chance(50) ? call->pool.pad_before : call->pool.pad_after); break;
    case 19: call->prologue_activation = random->Int(8); break;
    case 20: call->prologue_parameter = DrawNumber(random); break;
    default: call->workspace_bytes = random->Integer(); call->workspace_limit = random->Integer();
  }
}

void BreakTensor(Random* random, oocdnn_tensor* tensor) {
  switch (random->Below(6)) {
    case 0:
    case 1: tensor->shape[random->Below(5)] = random->Integer(); break;
    case 2:
    case 3: tensor->stride[random->Below(5)] = random->Integer(20); break;
    case 4: tensor->rank = random->Int(6); break;
    default: tensor->dtype = random->Int(5);
  }
}

void Place(Random* random, bool hostile, Operand operand, Case* into) {
  oocdnn_tensor& tensor = into->tensors[operand];
  const int64_t bytes = BytesOf(tensor);
  tensor.data = nullptr;
  if (bytes > kMostBytes || (hostile && random->Chance(3))) {
    into->right = false;
    return;
  }
  Block& block = into->blocks[operand];
  const size_t size = SizeOf(tensor.dtype);
  // Every byte of an element counts: an address that is not a multiple of its size is given too.
  const bool shifted = hostile && random->Chance(3);
  block.Allocate(random, tensor.dtype, static_cast<size_t>(bytes), shifted ? 1 : 0);
  tensor.data = block.data();
  if (hostile && random->Chance(5)) {
    const size_t other = random->Below(kOperands);
    const Block& shared = into->blocks[other];
    if (into->used[other] && shared.bytes() >= block.bytes()) {
      tensor.data = shared.data() + (shared.bytes() - block.bytes()) / size * size;
      into->shares = true;
      into->right = false;
    }
    return;
  }
  if (!random->Chance(3)) return;
  tensor.offset = static_cast<int64_t>(size) * random->Between(0, 3);
  const int file = memfd_create("fuzz", MFD_CLOEXEC);
  into->files[operand] = tensor.fd = file;
  if (file < 0) return;
  const auto length = static_cast<size_t>(bytes);
  const bool short_of = hostile && random->Chance(10) && length > 0;
  const ssize_t put = pwrite(file, block.data(), length - (short_of ? 1 : 0), tensor.offset);
  if (put != bytes) into->right = false;
  if (hostile && random->Chance(10)) {
    tensor.offset = random->Integer();
    into->right = false;
  }
  if (hostile && random->Chance(10)) {
    close(std::exchange(into->files[operand], -1));
    tensor.fd = random->Chance(50) ? 1 << 20 : file;  // the next file may get this number
    into->shares = true;
    into->right = false;
  }
}

namespace {

// Draws the epilogue, the pool and the options of a call.
void DrawMore(Random* random, int direction, Case* into) {
  const auto sometimes = [&](Operand operand, int of_hundred) {
    into->used[operand] = random->Chance(of_hundred);
  };
  const bool pools = into->call.pool.mode != OOCDNN_POOL_MODE_NONE;
  const bool makes = direction == OOCDNN_FORWARD || direction == OOCDNN_BACKWARD_DATA;
  if (makes) {
    sometimes(kBias, 30);
    sometimes(kScale, 10);
    sometimes(kResidual, 10);
    sometimes(kPrologue, 7);
    if (!pools) sometimes(kSums, 7);
    if (random->Chance(5)) into->call.prologue_activation = OOCDNN_RELU;
  }
  if (random->Chance(20)) into->call.alpha = static_cast<double>(random->Between(-2, 2));
  if (!pools && random->Chance(20)) into->call.beta = static_cast<double>(random->Between(-1, 2));
  if (random->Chance(10)) into->call.workspace_limit = random->Between(0, 4096);
}

// dz, what was saved, and the other gradients of the same pass.
void DrawGradients(Random* random, int direction, Case* into) {
  const bool follows = into->call.pool.mode != OOCDNN_POOL_MODE_NONE ||
                       (into->call.activation != 0 && random->Chance(50));
  const bool also = direction == OOCDNN_BACKWARD_DATA && random->Chance(15);
  const bool also_bias = direction == OOCDNN_BACKWARD_FILTER && random->Chance(10);
  into->used[kDw] = into->used[kInput] = also && random->Chance(70);
  into->used[kDb] = (also && (!into->used[kDw] || random->Chance(50))) || also_bias;
  const bool passes = follows || into->used[kDw] || into->used[kDb];
  if (!passes) {
    into->call.pool.mode = OOCDNN_POOL_MODE_NONE;
    return;
  }
  into->used[kZ] = true;
  into->used[kSums] = into->used[kPrologue] = false;
  into->call.prologue_activation = 0;
  if (!follows) {
    into->call.activation = 0;
    into->call.pool.mode = OOCDNN_POOL_MODE_NONE;
  }
  into->used[kY] = direction == OOCDNN_BACKWARD_BIAS;
  into->used[kSaved] = follows;
  into->call.beta = 0.0;
  into->call.alpha = 1.0;
}

}  // namespace

void DrawCase(Random* random, bool hostile, Case* into) {
  const auto direction = static_cast<int>(random->Chance(40) ? 0 : random->Below(4));
  const Sizes sizes = DrawSizes(random, nullptr, &into->call, direction);
  if (IsBackward(into->call) && random->Chance(70)) {
    into->call.pool.mode = 0;
    into->call.activation = 0;
  }
  const bool pools = into->call.pool.mode != OOCDNN_POOL_MODE_NONE;
  const bool bias = direction == OOCDNN_BACKWARD_BIAS;
  into->used[kX] = into->used[kW] = !bias;
  const bool pooled = direction == OOCDNN_FORWARD && pools;
  into->used[kY] = !pooled;
  into->used[kZ] = pooled;
  into->used[kBias] = bias;
  if (random->Chance(50)) DrawMore(random, direction, into);
  if (direction != OOCDNN_FORWARD) DrawGradients(random, direction, into);
  const int32_t dtype = DrawDtype(random);
  const bool dense = random->Chance(60);
  for (size_t i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool table = operand == kPrologue || operand == kSums;
    const int32_t own = operand == kSums                   ? OOCDNN_FLOAT64
                        : table && dtype != OOCDNN_FLOAT64 ? OOCDNN_FLOAT32
                        : operand == kSaved                ? OOCDNN_BYTE
                                                           : dtype;
    SetTensor(random, own, ShapeOf(operand, sizes, into->call), dense || table, &into->tensors[i]);
  }
  const bool saves = direction == OOCDNN_FORWARD && (pools || into->call.activation != 0);
  if (saves && random->Chance(40)) {
    into->call.saves = 1;
    into->used[kSaved] = true;
  }
  into->Connect();
  if (into->used[kSaved]) {
    // Asked of the forward pass, whose y or z is what is dz here.
    oocdnn_convolution forward = into->call;
    forward.direction = OOCDNN_FORWARD;
    Case shapes;
    for (const Operand operand : {kX, kW, pools ? kZ : kY}) {
      SetTensor(random, dtype, ShapeOf(operand, sizes, forward), true, &shapes.tensors[operand]);
      shapes.used[operand] = true;
    }
    shapes.Connect();
    int64_t bytes = 0;
    const bool known = oocdnn_saved_bytes(&forward, &shapes.operands, &bytes) == OOCDNN_OK;
    into->used[kSaved] = known && bytes > 0;
    if (!into->used[kSaved]) into->call.saves = 0;
    SetTensor(random, OOCDNN_BYTE, {bytes}, true, &into->tensors[kSaved]);
  }
  const bool plain = !into->used[kZ] && !into->used[kSaved] && !into->used[kScale] &&
                     !into->used[kResidual] && !into->used[kPrologue] && !into->used[kSums] &&
                     !into->used[kDw] && !into->used[kDb] && into->call.activation == 0 &&
                     into->call.prologue_activation == 0 && dtype <= OOCDNN_FLOAT64;
  const size_t output =
      std::array<size_t, 4>{pools ? kZ : kY, kX, kW, kBias}[static_cast<size_t>(direction)];
  into->written[output] = true;
  into->written[kSums] = into->written[kDw] = into->written[kDb] = true;
  into->written[kSaved] = direction == OOCDNN_FORWARD;
  for (int mistakes = hostile ? 1 + static_cast<int>(random->Below(2)) : 0; mistakes > 0;
       --mistakes) {
    into->right = false;
    const size_t any = random->Below(kOperands);
    if (random->Chance(40)) {
      BreakCall(random, &into->call);
    } else if (random->Chance(70)) {
      BreakTensor(random, &into->tensors[any]);
    } else {
      into->used[any] = !into->used[any];
    }
  }
  // A broken direction or pool writes other tensors.
  if (into->call.direction != direction) into->written.fill(true);
  if (hostile) into->written[kY] = into->written[kZ] = into->written[kSaved] = true;
  for (size_t i = 0; i < kOperands; ++i) {
    if (into->used[i]) Place(random, hostile, static_cast<Operand>(i), into);
  }
  into->Connect();
  into->exact = into->right && plain;
  for (size_t i = 0; i < kOperands; ++i) into->exact = into->exact && into->tensors[i].fd < 0;
  for (Block& block : into->blocks) block.Remember();
}

}  // namespace oocdnn::fuzz_capi
