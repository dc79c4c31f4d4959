#include "capi/translate.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

struct Source {
  const oocdnn_convolution& convolution;
  const oocdnn_operands& operands;
  Direction direction;
};

const oocdnn_tensor* TensorOf(const oocdnn_operands& operands, Operand operand) {
  switch (operand) {
    case Operand::kX: return operands.x;
    case Operand::kW: return operands.w;
    case Operand::kY: return operands.y;
    case Operand::kBias: return operands.bias;
    case Operand::kScale: return operands.scale;
    case Operand::kResidual: return operands.residual;
    case Operand::kOld: return nullptr;
    case Operand::kZ: return operands.z;
    case Operand::kSaved: return operands.saved;
    case Operand::kInput: return operands.input;
    case Operand::kDw: return operands.dw;
    case Operand::kDb: return operands.db;
    case Operand::kPrologue: return operands.prologue;
    case Operand::kSums: return operands.sums;
  }
  return nullptr;
}

Status CheckEnums(const oocdnn_convolution& convolution) {
  struct Field {
    const char* name;
    int32_t value, count;
  };
  for (const Field& field :
       {Field{"direction", convolution.direction, kDirections}, Field{"mode", convolution.mode, 2},
        Field{"math", convolution.math, kMaths},
        Field{"activation", convolution.activation, kActivations},
        Field{"prologue_activation", convolution.prologue_activation, kActivations},
        Field{"the pool's mode", convolution.pool.mode, kPoolModes}}) {
    if (field.value < 0 || field.value >= field.count) {
      return Error(Code::kInvalidProblem, "%s is %d; the values are 0 to %d", field.name,
                   field.value, field.count - 1);
    }
  }
  if (convolution.rank < 1 || convolution.rank > 3) {
    return Error(Code::kInvalidProblem, "%d spatial axes; 1, 2 or 3 are possible",
                 convolution.rank);
  }
  const int64_t scratch = convolution.workspace_bytes;
  if (scratch < 0 || (scratch > 0 && convolution.workspace == nullptr)) {
    return Error(Code::kInvalidProblem,
                 "workspace_bytes is %lld and workspace is %s: pass the bytes of the memory there, "
                 "or NULL and 0",
                 static_cast<long long>(scratch),
                 convolution.workspace == nullptr ? "null" : "not null");
  }
  if (convolution.groups < 1) {
    return Error(Code::kInvalidProblem, "groups is %lld; it must be at least 1",
                 static_cast<long long>(convolution.groups));
  }
  return {};
}

// One value per channel, which may also be in the type of sums.
bool IsPerChannel(Operand operand) {
  return operand == Operand::kBias || operand == Operand::kScale || operand == Operand::kDb;
}

bool IsVector(Operand operand) { return IsPerChannel(operand) || operand == Operand::kSaved; }

bool IsFilter(Operand operand) { return operand == Operand::kW || operand == Operand::kDw; }

// Presence, number of axes and types.
Status CheckTensors(const Source& source, const Problem& problem) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (operand == Operand::kOld || !problem.Has(operand)) continue;
    const oocdnn_tensor* tensor = TensorOf(source.operands, operand);
    const char* name = Name(operand, source.direction);
    if (tensor == nullptr) return Error(Code::kInvalidProblem, "%s is missing", name);
    const bool vector = IsVector(operand);
    const int rank = vector ? 1 : IsTable(operand) ? 3 : source.convolution.rank + 2;
    if (tensor->rank != rank) {
      return Error(Code::kInvalidProblem,
                   "%s has %d axes; a convolution with %d spatial axes needs %d%s", name,
                   tensor->rank, source.convolution.rank, rank,
                   vector || IsTable(operand) ? "" : " (batch and channels included)");
    }
    const bool bytes = operand == Operand::kSaved && tensor->dtype == OOCDNN_BYTE;
    if (!bytes && !IsValid(static_cast<DType>(tensor->dtype))) {
      return Error(Code::kInvalidDtype, "%s has the unknown element type %d", name, tensor->dtype);
    }
    for (int d = 0; d < rank; ++d) {
      if (tensor->shape[d] < 0) {
        return Error(Code::kInvalidProblem, "%s has the negative extent %lld on axis %d", name,
                     static_cast<long long>(tensor->shape[d]), d);
      }
    }
  }
  return {};
}

// Types must be equal but for what is per channel.
Status CheckTypes(const Source& source, const Problem& problem) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (operand == Operand::kOld || !problem.Has(operand)) continue;
    const auto dtype = static_cast<DType>(TensorOf(source.operands, operand)->dtype);
    if (dtype == problem.DTypeOf(operand)) continue;
    if (IsPerChannel(operand) && dtype == AccumulatorOf(problem.dtype)) continue;
    if (IsTable(operand)) {
      return Error(Code::kInvalidDtype, "%s is %s; beside %s it must be %s",
                   Name(operand, source.direction), Name(dtype), Name(problem.dtype),
                   Name(problem.DTypeOf(operand)));
    }
    return Error(Code::kInvalidDtype, "%s is %s but %s is %s; convert one of them",
                 Name(operand, source.direction), Name(dtype),
                 source.direction == Direction::kBackwardBias ? "dy" : "the other operand",
                 Name(problem.DTypeOf(operand)));
  }
  return {};
}

// The tensor that is known to have the batch and the channels of y.
const oocdnn_tensor* LikeY(const Source& source, const Problem& problem) {
  return problem.passes_y() ? source.operands.z : source.operands.y;
}

// The gradient of a convolution whose y was only on the way: the activation is of that pass.
Status SetRestored(const Source& source, Problem* problem) {
  const bool backward = source.direction != Direction::kForward;
  if (problem->saves && backward) {
    return Error(Code::kInvalidProblem, "`saves` goes with fwd only, not with %s",
                 Name(source.direction));
  }
  const bool pools = problem->pool.pools();
  if (!backward || (source.operands.z == nullptr && !pools)) return {};
  const Activation activation = std::exchange(problem->epilogue.activation, Activation::kIdentity);
  problem->slopes = IsSmooth(activation);
  problem->clips = activation != Activation::kIdentity && !problem->slopes;
  if (problem->passes_y()) return {};
  return Error(Code::kInvalidProblem, "dz without a pool and an activation is dy: pass it as y");
}

// Of dy's gradient with respect to the bias nothing else tells the sizes of y.
Status CheckSizesOfY(const Source& source, const Problem& problem) {
  if (!problem.restores() || source.direction != Direction::kBackwardBias) return {};
  const oocdnn_tensor* y = source.operands.y;
  if (y != nullptr && y->rank == source.convolution.rank + 2) return {};
  return Error(Code::kInvalidProblem,
               "the sizes of y are missing: pass a tensor of its shape, whose data are not read");
}

// What follows y: its own sizes where it is not a tensor of the caller's, and those of z and of
// what is saved. z's are the caller's, and Validate says what they should be.
void SetPooledSizes(const Source& source, Problem* problem) {
  ConvShape& shape = problem->shape;
  const int first = 3 - source.convolution.rank;
  const bool passes = problem->passes_y();
  const bool bias = source.direction == Direction::kBackwardBias;
  for (int s = first; s < 3 && passes && bias; ++s) {
    shape.in[s] = shape.out[s] = source.operands.y->shape[2 + s - first];
  }
  for (int s = first; s < 3 && passes && !bias; ++s) {
    const bool moves = shape.stride[s] > 0;
    shape.out[s] = moves ? OutputExtent(shape.in[s], shape.pad_before[s], shape.pad_after[s],
                                        shape.filter[s], shape.stride[s], shape.dilation[s])
                         : 0;
  }
  SetPooled(problem);
  for (int s = first; s < 3 && passes; ++s) {
    shape.pooled[s] = source.operands.z->shape[2 + s - first];
  }
}

Status SetSizes(const Source& source, Problem* problem) {
  const oocdnn_convolution& convolution = source.convolution;
  ConvShape& shape = problem->shape;
  const int first = 3 - convolution.rank;
  for (int s = first; s < 3; ++s) {
    shape.pad_before[s] = convolution.pad_before[s];
    shape.pad_after[s] = convolution.pad_after[s];
    shape.stride[s] = convolution.stride[s];
    shape.dilation[s] = convolution.dilation[s];
  }
  const oocdnn_tensor& y = *LikeY(source, *problem);
  shape.g = convolution.groups;
  shape.n = y.shape[0];
  if (y.shape[1] % shape.g != 0) {
    return Error(Code::kInvalidProblem, "%s has %lld channels, which %lld groups do not divide",
                 Name(Operand::kY, source.direction), static_cast<long long>(y.shape[1]),
                 static_cast<long long>(shape.g));
  }
  shape.k = y.shape[1] / shape.g;
  for (int s = first; s < 3; ++s) shape.out[s] = y.shape[2 + s - first];
  if (source.direction == Direction::kBackwardBias) {
    shape.in = shape.out;
    return {};
  }
  const oocdnn_tensor &x = *source.operands.x, &w = *source.operands.w;
  if (x.shape[1] % shape.g != 0) {
    return Error(Code::kInvalidProblem, "%s has %lld channels, which %lld groups do not divide",
                 Name(Operand::kX, source.direction), static_cast<long long>(x.shape[1]),
                 static_cast<long long>(shape.g));
  }
  shape.c = x.shape[1] / shape.g;
  for (int s = first; s < 3; ++s) {
    shape.in[s] = x.shape[2 + s - first];
    shape.filter[s] = w.shape[2 + s - first];
  }
  struct Pair {
    const char* what;
    int64_t have, want;
  };
  for (const Pair& pair :
       {Pair{"batch of x against y", x.shape[0], y.shape[0]},
        Pair{"first axis of w against the channels of y", w.shape[0], y.shape[1]},
        Pair{"second axis of w against the channels of x per group", w.shape[1], shape.c}}) {
    if (pair.have != pair.want) {
      return Error(Code::kInvalidProblem, "%s: %lld is not %lld", pair.what,
                   static_cast<long long>(pair.have), static_cast<long long>(pair.want));
    }
  }
  ShortenStrides(&shape);
  return {};
}

// The strides of an array with axes N C [D [H]] W (or K C/g ..., or one) in six dimensions.
Dims SixStrides(const oocdnn_tensor& tensor, Operand operand, const Problem& problem) {
  const ConvShape& shape = problem.shape;
  const Direction direction = problem.direction;
  Dims stride{};
  const bool dense = operand == Operand::kSaved || IsTable(operand);
  if (dense) return DenseStrides(problem.DimsOf(operand));
  if (tensor.rank == 1) {
    const int64_t per_group = shape.DimsOf(operand, direction)[2];
    stride[1] = Mul(tensor.stride[0], per_group);
    stride[2] = tensor.stride[0];
    return stride;
  }
  if (IsFilter(operand)) {
    stride[0] = Mul(tensor.stride[0], shape.k);
    stride[1] = tensor.stride[0];
    stride[2] = tensor.stride[1];
  } else {
    const bool y_like = operand == Operand::kY || operand == Operand::kZ;
    const bool out_like =
        y_like || (operand != Operand::kX && direction != Direction::kBackwardData);
    stride[0] = tensor.stride[0];
    stride[1] = Mul(tensor.stride[1], out_like ? shape.k : shape.c);
    stride[2] = tensor.stride[1];
  }
  for (int a = 2; a < tensor.rank; ++a) stride[8 - tensor.rank + a - 2] = tensor.stride[a];
  return stride;
}

Status CheckTable(const oocdnn_tensor& tensor, Operand operand, const Source& source,
                  const Problem& problem) {
  const Dims dims = problem.DimsOf(operand);
  const int64_t numbers = dims[5];
  const std::array<int64_t, 3> wanted{dims[0], dims[2], numbers};
  const std::array<int64_t, 3> dense{Mul(numbers, dims[2]), numbers, 1};
  const bool empty = dims[0] == 0;  // no stride means anything
  bool same = true;
  for (size_t a = 0; a < wanted.size(); ++a) {
    const bool steps = !empty && wanted[a] > 1;
    same = same && tensor.shape[a] == wanted[a] && (!steps || tensor.stride[a] == dense[a]);
  }
  if (same) return {};
  return Error(
      Code::kInvalidProblem,
      "%s must be a dense array of %lld x %lld x %lld, samples and channels%s",
      Name(operand, source.direction), static_cast<long long>(dims[0]),
      static_cast<long long>(dims[2]), static_cast<long long>(numbers),
      operand == Operand::kSums && !problem.pairs ? "; or x 2, the first two numbers" : "");
}

Status CheckShape(const oocdnn_tensor& tensor, Operand operand, const Source& source,
                  const Problem& problem) {
  const Dims dims = problem.DimsOf(operand);
  if (operand == Operand::kSaved) {
    OOC_TRY(Validate(problem));  // a wrong pool is not told of as too few bytes
    const bool dense = tensor.shape[0] <= 1 || tensor.stride[0] == 1;
    if (tensor.shape[0] >= problem.BytesOf(operand) && dense) return {};
    return Error(Code::kInvalidProblem,
                 "saved has %lld bytes, and %lld are needed, side by side (oocdnn_saved_bytes)",
                 static_cast<long long>(tensor.shape[0]),
                 static_cast<long long>(problem.BytesOf(operand)));
  }
  if (IsTable(operand)) return CheckTable(tensor, operand, source, problem);
  const bool vector = tensor.rank == 1, filter = IsFilter(operand);
  const int64_t both = filter ? Mul(dims[0], dims[1]) : Mul(dims[1], dims[2]);  // with the groups
  bool same = vector   ? tensor.shape[0] == both
              : filter ? tensor.shape[0] == both && tensor.shape[1] == dims[2]
                       : tensor.shape[0] == dims[0] && tensor.shape[1] == both;
  for (int a = 2; a < tensor.rank; ++a) {
    same = same && tensor.shape[a] == dims[static_cast<size_t>(8 - tensor.rank + a - 2)];
  }
  if (same) return {};
  return Error(Code::kInvalidProblem, "%s does not have the shape of its convolution: %s has %lld",
               Name(operand, source.direction), vector ? "its one axis" : "a channel axis",
               static_cast<long long>(vector ? tensor.shape[0] : tensor.shape[1]));
}

// A convolution proper reads its filter backwards: the view starts at the last tap. Extents and
// strides that Validate refuses, and a null pointer, stay as they are, for the checks of the call.
void Flip(const ConvShape& shape, TensorView* view) {
  int64_t bytes = 0;
  for (int s = 0; s < 3; ++s) {
    const int64_t stride = view->stride[3 + s];
    if (shape.filter[s] > 1 && stride < 1) return;
    const int64_t shift = shape.filter[s] > 1 ? Mul(shape.filter[s] - 1, stride) : 0;
    bytes = Add(bytes, Mul(shift, SizeOf(view->dtype)));
  }
  int64_t* const file_offset = &view->location.offset;
  const bool in_file = view->in_file();
  const bool placed = in_file ? *file_offset >= 0 : view->data != nullptr;
  if (!placed || bytes == kSizeMax) return;
  for (int s = 0; s < 3; ++s) {
    int64_t& stride = view->stride[3 + s];
    if (shape.filter[s] > 1) stride = -stride;
  }
  if (in_file) {
    *file_offset = Add(*file_offset, bytes);
  } else {
    const uintptr_t first = reinterpret_cast<uintptr_t>(view->data);
    view->data = reinterpret_cast<void*>(first + static_cast<uintptr_t>(bytes));  // NOLINT
  }
}

void SetTensor(const Source& source, Operand operand, CallArguments* call) {
  oocdnn_tensor tensor = *TensorOf(source.operands, operand);
  // The stride of an extent of 1 may be any number; it is not used.
  for (int32_t axis = 0; axis < tensor.rank; ++axis) {
    if (tensor.shape[axis] <= 1) tensor.stride[axis] = 0;
  }
  Problem& problem = call->problem;
  problem.stride[Index(operand)] = SixStrides(tensor, operand, problem);
  TensorView& view = call->tensors[Index(operand)];
  view = {tensor.data, static_cast<DType>(tensor.dtype), problem.stride[Index(operand)]};
  if (tensor.fd >= 0) view.location = {Tier::kFile, -1, tensor.fd, tensor.offset};
}

// All of them before any is checked, which may look at the whole problem.
Status SetTensors(const Source& source, CallArguments* call) {
  const Problem& problem = call->problem;
  const auto given = [&](Operand operand) {
    return operand != Operand::kOld && problem.Has(operand);
  };
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (given(operand)) SetTensor(source, operand, call);
  }
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool tells_sizes = operand == Operand::kX || operand == Operand::kW ||
                             operand == Operand::kY || operand == Operand::kZ;
    if (tells_sizes || !given(operand)) continue;
    OOC_TRY(CheckShape(*TensorOf(source.operands, operand), operand, source, problem));
  }
  return {};
}

}  // namespace

Pool PoolOf(const oocdnn_convolution& convolution) {
  const oocdnn_pool& given = convolution.pool;
  Pool pool;
  pool.mode = static_cast<PoolMode>(given.mode);
  if (!pool.pools()) return pool;
  pool.ceil = given.ceil != 0;
  for (int s = 3 - convolution.rank; s < 3; ++s) {
    pool.window[s] = given.window[s];
    pool.stride[s] = given.stride[s];
    pool.pad_before[s] = given.pad_before[s];
    pool.pad_after[s] = given.pad_after[s];
  }
  return pool;
}

Result<CallArguments> Translate(const oocdnn_convolution* convolution,
                                const oocdnn_operands* operands, Math default_math) {
  if (convolution == nullptr || operands == nullptr) {
    return Error(Code::kInvalidProblem, "the convolution or the operands are missing (null)");
  }
  OOC_TRY(CheckEnums(*convolution));
  const Source source{*convolution, *operands, static_cast<Direction>(convolution->direction)};
  CallArguments call;
  Problem& problem = call.problem;
  problem.direction = source.direction;
  problem.rank = convolution->rank;
  problem.flip = convolution->mode == OOCDNN_CONVOLUTION;
  problem.alpha = convolution->alpha;
  problem.beta = convolution->beta;
  Epilogue& epilogue = problem.epilogue;
  epilogue.bias = operands->bias != nullptr && source.direction != Direction::kBackwardBias;
  epilogue.scale = operands->scale != nullptr;
  epilogue.residual = operands->residual != nullptr;
  epilogue.residual_alpha = convolution->residual_alpha;
  epilogue.activation = static_cast<Activation>(convolution->activation);
  epilogue.parameter = convolution->activation_parameter;
  problem.saves = convolution->saves != 0;
  problem.also = {operands->dw != nullptr, operands->db != nullptr};
  problem.pool = PoolOf(*convolution);
  problem.prologue = {operands->prologue != nullptr,
                      static_cast<Activation>(convolution->prologue_activation),
                      convolution->prologue_parameter};
  problem.sums = operands->sums != nullptr;
  problem.pairs = problem.sums && operands->sums->rank == 3 && operands->sums->shape[2] == kSumPair;
  const bool gradient = source.direction == Direction::kBackwardFilter ||
                        source.direction == Direction::kBackwardBias;
  if (gradient && (epilogue.bias || epilogue.scale)) {
    return Error(Code::kInvalidProblem, "%s takes neither bias nor scale", Name(source.direction));
  }
  OOC_TRY(SetRestored(source, &problem));
  OOC_TRY(CheckTensors(source, problem));
  OOC_TRY(CheckSizesOfY(source, problem));
  problem.dtype = static_cast<DType>(LikeY(source, problem)->dtype);
  if (problem.dtype == DType::kFloat32) {  // others have one arithmetic
    problem.math = convolution->math != 0 ? static_cast<Math>(convolution->math) : default_math;
  }
  OOC_TRY(CheckTypes(source, problem));
  OOC_TRY(SetSizes(source, &problem));
  SetPooledSizes(source, &problem);
  OOC_TRY(SetTensors(source, &call));
  for (const Operand filter : {Operand::kW, Operand::kDw}) {
    TensorView& tensor = call.tensors[Index(filter)];
    if (!problem.flip || !problem.Uses(filter)) continue;
    Flip(problem.shape, &tensor);
  }
  call.tensors[Index(Operand::kOld)] = call.tensors[Index(problem.output())];
  problem.stride[Index(Operand::kOld)] = problem.stride[Index(problem.output())];
  return call;
}

}  // namespace oocdnn
