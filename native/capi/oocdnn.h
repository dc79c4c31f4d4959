/* oocdnn: exact convolutions whose tensors do not fit the device.
 *
 * The C interface of the core. Plain C11. Nothing here throws, exits, aborts or prints.
 *
 * Every function that can fail returns an oocdnn_status; oocdnn_last_error() gives the text that
 * belongs to it. A context stays usable after any error.
 *
 * Threads: functions may be called from any thread; calls on one context take turns.
 * Order: a call reads and writes operands on a GPU and in pinned memory in the order of the
 * caller's stream. It returns when all is done; where all operands are on the GPU, when all is
 * enqueued.
 */
#ifndef OOCDNN_H_
#define OOCDNN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define OOCDNN_API __attribute__((visibility("default")))
#else
#define OOCDNN_API
#endif

#define OOCDNN_VERSION_MAJOR 0
#define OOCDNN_VERSION_MINOR 1
#define OOCDNN_VERSION_PATCH 0

typedef enum oocdnn_status {
  OOCDNN_OK = 0,
  OOCDNN_INVALID_PROBLEM = 1, /* shapes, strides, parameters, overlapping or short operands */
  OOCDNN_INVALID_DTYPE = 2,   /* an unknown element type, or types that do not go together */
  OOCDNN_OUT_OF_MEMORY = 3,   /* the text says what was needed, allowed, and the least that works */
  OOCDNN_UNSUPPORTED = 4,     /* well formed, but nothing here computes it */
  OOCDNN_DEVICE_ERROR = 5,
  OOCDNN_INTERRUPTED = 6, /* the progress function asked for the end of the call */
  OOCDNN_FILE_ERROR = 7,  /* reading or writing an operand in a file failed */
  OOCDNN_INTERNAL = 8
} oocdnn_status;

typedef enum oocdnn_dtype {
  OOCDNN_FLOAT32 = 0,
  OOCDNN_FLOAT64 = 1,
  OOCDNN_FLOAT16 = 2,
  OOCDNN_BFLOAT16 = 3,
  OOCDNN_BYTE = 4 /* only of what is saved for backward */
} oocdnn_dtype;

typedef enum oocdnn_direction {
  OOCDNN_FORWARD = 0,         /* y  from x, w */
  OOCDNN_BACKWARD_DATA = 1,   /* dx from dy, w; also transposed convolution */
  OOCDNN_BACKWARD_FILTER = 2, /* dw from x, dy */
  OOCDNN_BACKWARD_BIAS = 3    /* db from dy */
} oocdnn_direction;

typedef enum oocdnn_mode {
  OOCDNN_CROSS_CORRELATION = 0,
  OOCDNN_CONVOLUTION = 1 /* mirrored filter */
} oocdnn_mode;

typedef enum oocdnn_math {
  OOCDNN_MATH_FP32 = 0,
  OOCDNN_MATH_TF32 = 1,     /* tensor cores for float32 where the device has them */
  OOCDNN_MATH_FP32X3 = 2,   /* three products of TF32 for one of float32: about its error */
  OOCDNN_MATH_FP32_FAST = 3 /* Winograd's and Fourier's transforms, which round more often */
} oocdnn_math;

typedef enum oocdnn_activation {
  OOCDNN_IDENTITY = 0,
  OOCDNN_RELU = 1,
  OOCDNN_CLIPPED_RELU = 2, /* min(max(v, 0), parameter) */
  OOCDNN_ELU = 3,          /* v > 0 ? v : parameter * (exp(v) - 1) */
  OOCDNN_SIGMOID = 4,
  OOCDNN_TANH = 5,
  OOCDNN_SWISH = 6,   /* v * sigmoid(parameter * v) */
  OOCDNN_SOFTPLUS = 7 /* log(1 + exp(parameter * v)) / parameter */
} oocdnn_activation;

typedef enum oocdnn_pool_mode {
  OOCDNN_POOL_MODE_NONE = 0,
  OOCDNN_POOL_MODE_MAX = 1,           /* the first of the largest, row-major; NaN is above all */
  OOCDNN_POOL_MODE_AVERAGE = 2,       /* padding counts as zeros */
  OOCDNN_POOL_MODE_AVERAGE_INSIDE = 3 /* over the elements that there are */
} oocdnn_pool_mode;

/* Windows over the result of a forward convolution, of this call or of one whose gradients this one
 * computes. The arrays are those of oocdnn_convolution. */
typedef struct oocdnn_pool {
  int32_t mode; /* oocdnn_pool_mode; the others mean nothing without one */
  int32_t ceil; /* 1: a last window that passes the end counts, if it begins before that; an axis
                 * shorter than the window then has one */
  int64_t window[3];
  int64_t stride[3];
  int64_t pad_before[3]; /* less than the window */
  int64_t pad_after[3];
} oocdnn_pool;

/* A strided tensor in memory or in a file. Axes: x, y: N C [D [H]] W; w: K C/groups [T [R]] S;
 * bias and scale: one axis, the output's channels; prologue: N C 2, sums: N K 5 or N K 2, both
 * dense. */
typedef struct oocdnn_tensor {
  void* data;       /* the first element; ignored where fd >= 0 */
  int64_t offset;   /* file: byte offset of the first element */
  int32_t fd;       /* an open file descriptor, or -1 for memory */
  int32_t dtype;    /* oocdnn_dtype */
  int32_t rank;     /* number of axes */
  int32_t reserved; /* 0 */
  int64_t shape[5];
  int64_t stride[5]; /* in elements, positive (0 where the extent is 1) */
} oocdnn_tensor;

/* Returns 0 to go on, anything else to end the call with OOCDNN_INTERRUPTED. Called between tiles,
 * in the calling thread. It may use other contexts. Functions that need the context of the call
 * return OOCDNN_DEVICE_ERROR there; oocdnn_get_stats tells of the call as far as it has come, and
 * oocdnn_destroy takes effect at the end of the call. The thread may end in it (pthread_exit, or
 * pthread_cancel where cancellation is deferred); cancellation waits at all other points of a call.
 * longjmp out of it is not allowed: the context would stay locked. */
typedef int (*oocdnn_progress)(void* user, int64_t tiles_done, int64_t tiles);

/* out = activation(alpha * conv [* scale] [+ bias] [+ residual_alpha * residual] + beta * out).
 * Where there is a prologue, operands.prologue or prologue_activation or both, what is convolved is
 * prologue_activation(x * scale[n, c] + shift[n, c]), rounded to x's type, in zero padding: of
 * backward data, a transposed convolution, it is y that is read so.
 * With a pool that is y, which never leaves the device; z, the pool of it, does, and beta is 0.
 * Gradients of such a call take dz, the gradient of what it wrote, as z, what it saved as saved,
 * and its pool and activation; dy is made of these on the device. Their own result has no
 * activation then.
 * The spatial arrays are ordered D, H, W; a convolution of `rank` spatial axes uses the last
 * `rank` entries. */
typedef struct oocdnn_convolution {
  int32_t direction; /* oocdnn_direction */
  int32_t rank;      /* spatial axes: 1, 2 or 3 */
  int64_t pad_before[3];
  int64_t pad_after[3];
  int64_t stride[3];
  int64_t dilation[3];
  int64_t groups;
  int32_t mode; /* oocdnn_mode */
  int32_t math; /* oocdnn_math */
  double alpha;
  double beta;
  int32_t activation; /* oocdnn_activation */
  int32_t saves;      /* 1: forward, what backward needs is written to operands.saved */
  double activation_parameter;
  double residual_alpha;
  oocdnn_pool pool;
  int32_t prologue_activation; /* oocdnn_activation */
  int32_t reserved;            /* 0 */
  double prologue_parameter;
  oocdnn_progress progress; /* or NULL */
  void* progress_user;
  void* stream; /* the caller's CUDA stream; NULL: the default stream, or the CPU device */
  /* Device memory that a call with all operands on the GPU uses in the order of that stream instead
   * of booking its own, where it is as much as oocdnn_plan_in_core says; or NULL and 0. */
  void* workspace;
  int64_t workspace_bytes;
  int64_t workspace_limit; /* the most bytes of an engine's workspace; below 0: the context's */
} oocdnn_convolution;

/* The tensors of one call. x, w, y are dx, dw, dy where the direction says so. NULL where unused:
 * forward x w y, or with a pool x w z; backward data w y x; backward filter x y w; backward bias y
 * bias. Backward data with dw, db or both, and backward filter with db, computes these too, in one
 * pass over z, which is dz then even where nothing came after y; with dw, x is passed as input.
 * beta is 0 then and alpha 1. Where that cannot be (OOCDNN_UNSUPPORTED, OOCDNN_OUT_OF_MEMORY) a
 * call for each gradient still may. */
typedef struct oocdnn_operands {
  const oocdnn_tensor* x;
  const oocdnn_tensor* w;
  const oocdnn_tensor* y;
  const oocdnn_tensor* bias; /* also db */
  const oocdnn_tensor* scale;
  const oocdnn_tensor* residual; /* shaped as the output, with a pool as y */
  const oocdnn_tensor* z; /* also dz; backward bias wants y then too, of which it reads the shape */
  const oocdnn_tensor* saved; /* one axis of oocdnn_saved_bytes, OOCDNN_BYTE, dense */
  const oocdnn_tensor* input; /* x where x is dx: shaped as that, read for dw */
  const oocdnn_tensor* dw;    /* shaped as w */
  const oocdnn_tensor* db;    /* as bias, of the channels of y */
  /* Scale and shift of each sample and channel of what is convolved, in the type of sums: float64
   * beside float64, else float32. Forward and backward data. */
  const oocdnn_tensor* prologue;
  /* float64, written: for each sample and channel of the output the sum of its elements, rounded as
   * they are written, and that of their squares; in a table of N K 5 then their count, their mean,
   * and the sum of their squared deviations from it, which divided by the count is the variance.
   * (Of the first two alone no variance can be made where the mean is large beside it: its digits
   * cancel.) Forward without a pool, and backward data; not in a reproducible context. */
  const oocdnn_tensor* sums;
} oocdnn_operands;

/* How a context is made. Start from oocdnn_default_options(); a NULL string means the variable of
 * the same name (OOCDNN_DEVICE, OOCDNN_BUDGET, ...), then the default.
 *
 * A context of several devices cuts each call into shares, one for each of them, which run at the
 * same time; operands are in host memory or in files. Budget, threads and staging memory are of
 * each device. In the statistics tiles, bytes, allocations and the seconds of stages are sums over
 * the devices; the call's seconds, peak and budget are the largest of any device. Functions that
 * concern one device (plans given as text, scratch memory, traces, calibration) and joint gradients
 * return OOCDNN_UNSUPPORTED. */
typedef struct oocdnn_options {
  const char* device;      /* "auto", "cpu", "cuda:N"; several: "cuda:0,cuda:1" */
  const char* budget;      /* device bytes: "2GiB", "50%" of what is free, "auto", a plain number */
  const char* engine;      /* only this engine ("cudnn", "depthwise", "direct", ...); "" for any */
  const char* wrap;        /* devices to wrap around, inner first: "check,trace"; "" for none */
  const char* profile;     /* file with the machine's constants; "" for the user's cache */
  const char* planning;    /* "estimate", "gradual", ..., see OOCDNN_PLANNING */
  const char* workspace;   /* the most bytes of an engine's workspace, see OOCDNN_WORKSPACE_LIMIT */
  const char* busy_gpus;   /* other GPUs that are busy too: "0", "7", see OOCDNN_BUSY_GPUS */
  const char* borrow;      /* GPUs over whose links copies go too: "cuda:1,cuda:2"; "" for none */
  int32_t threads;         /* 0: all cores this process may use */
  int32_t reproducible;    /* 1: bits do not depend on the budget */
  int32_t trace;           /* 1: record a timeline, see oocdnn_take_trace */
  int32_t math;            /* oocdnn_math used where a call says fp32; 0 */
  int64_t host_cap;        /* bytes of staging memory; 0: default */
  double link_gb_per_s;    /* CPU device: a wire of this rate in each direction; 0: none */
  double planning_seconds; /* for measuring, exhaustive searches and chains; 0: the variable */
} oocdnn_options;

/* What the last call on a context did. */
typedef struct oocdnn_stats {
  int64_t tiles;
  int64_t peak_device_bytes;     /* high-water of what was booked since oocdnn_release */
  int64_t overhead_device_bytes; /* held by drivers and libraries, not ours to bound */
  int64_t bytes_h2d;             /* crossed toward the device */
  int64_t bytes_d2h;             /* crossed from the device */
  int64_t device_allocations;    /* made by this call; 0 after warm-up */
  int64_t prepared;              /* executables prepared by this call; 0 after warm-up */
  int64_t budget_bytes;
  double seconds;
  double fetch_seconds; /* busy time of each engine */
  double compute_seconds;
  double drain_seconds;
  double overlap; /* sum of the three / seconds */
  double predicted_seconds;
  double planning_seconds; /* looking for the plan: microseconds, but for a first call's */
  int64_t split[7];        /* pieces on N, groups, K, C, D, H, W */
  char engine[32];
} oocdnn_stats;

typedef enum oocdnn_batch_policy {
  OOCDNN_BATCH_POLICY_UNDIVIDED = 0,     /* the batch itself */
  OOCDNN_BATCH_POLICY_POWERS_OF_TWO = 1, /* 1, 2, 4, ... and the batch */
  OOCDNN_BATCH_POLICY_ALL = 2            /* 1, 2, 3, ... up to the batch */
} oocdnn_batch_policy;

/* One measured way to run a convolution on some samples of its batch. */
typedef struct oocdnn_micro_batch {
  int64_t samples;         /* positive */
  double seconds;          /* finite, not negative */
  int64_t workspace_bytes; /* not negative */
} oocdnn_micro_batch;

/* Parts of a batch that all run in the same way. */
typedef struct oocdnn_parts {
  int64_t choice; /* index of the way among those given */
  int64_t count;
} oocdnn_parts;

/* A batch in parts that run one after the other in one workspace, those of most samples first. The
 * very last may hold fewer samples than its choice, and counts as a full one. */
typedef struct oocdnn_division {
  double seconds;            /* the sum over the parts */
  int64_t workspace_bytes;   /* of the part that needs most */
  const oocdnn_parts* parts; /* `length` of them */
  int64_t length;
} oocdnn_division;

/* One way to run a kernel, which is a layer in one direction. */
typedef struct oocdnn_workspace_option {
  double seconds;          /* finite, and so is the sum over kernels */
  int64_t workspace_bytes; /* not negative */
} oocdnn_workspace_option;

/* One workspace divided among kernels: sums over them. */
typedef struct oocdnn_workspace_division {
  double seconds;
  int64_t workspace_bytes;
  double least_seconds; /* no division takes less; `seconds` where that is proven the least */
} oocdnn_workspace_division;

/* A training step as its planner sees it. Positions are indices of operations, in the order in
 * which they run; the first `forward` ones are forward. Times are in seconds, finite and not
 * negative. What the host enqueues, the device begins no earlier than the host does, and ends no
 * earlier; times named `host` are what it takes the host, 0 where that is not known. */
typedef struct oocdnn_step_operation {
  double seconds; /* of the device */
  double host;
  int64_t fixed_bytes; /* device bytes in use while it runs, besides the saved tensors */
  int64_t begin_bytes; /* those in use when it begins, and while recipes run for it */
} oocdnn_step_operation;

/* A tensor that forward leaves for backward. */
typedef struct oocdnn_step_tensor {
  int64_t bytes;
  int64_t produced;         /* position of the operation that writes it */
  int64_t last_forward_use; /* `produced` if none reads it in forward */
  int64_t first_use;        /* in backward */
  int64_t last_use;
  int64_t squeezed_bytes; /* of a smaller form, on the device to the last use; -1: none */
  double squeeze_seconds; /* to the smaller form and back, one half each */
  double squeeze_host;    /* likewise */
  int64_t recipes;        /* number of its recipes */
  int32_t movable;        /* 0: it stays where it is */
  int32_t squeezed_whole; /* 0: recipes cannot read what comes back from the smaller form */
} oocdnn_step_tensor;

/* A way to compute a saved tensor again before its first use in backward. */
typedef struct oocdnn_step_recipe {
  double seconds;
  double host;
  int64_t temporary_bytes; /* device bytes besides inputs and result while it runs */
  int64_t inputs;          /* number of saved tensors that it reads */
} oocdnn_step_recipe;

/* Tensors are in the order of production. Recipes are those of the first tensor, then those of the
 * second, and so on; inputs, indices of tensors smaller than that of the result, are in the order
 * of the recipes. Bytes are at most 2^60 in all. */
typedef struct oocdnn_training_step {
  const oocdnn_step_operation* operations;
  const oocdnn_step_tensor* tensors;
  const oocdnn_step_recipe* recipes;
  const int64_t* inputs;
  int64_t operation_count;
  int64_t forward;
  int64_t tensor_count;
  int64_t recipe_count;
  int64_t input_count;
  double to_host; /* rate of copies away from the device, in bytes a second */
  double from_host;
  double latency; /* seconds from the start of a copy to its first byte */
  double host;    /* of one copy */
} oocdnn_training_step;

/* The policy of a saved tensor; its recipes are OOCDNN_POLICY_RECIPE + 0, 1, ... */
typedef enum oocdnn_policy {
  OOCDNN_POLICY_KEEP = 0,
  OOCDNN_POLICY_SWAP = 1,    /* copied to the host and back */
  OOCDNN_POLICY_SQUEEZE = 2, /* held in its smaller form */
  OOCDNN_POLICY_RECIPE = 3   /* computed again */
} oocdnn_policy;

/* Positions of one saved tensor; -1 where it is kept. */
typedef struct oocdnn_movement {
  int64_t release; /* its bytes are free before this operation; the device waits for the copy */
  int64_t fetch;   /* its bytes are taken again before this operation, and its copy starts */
  int64_t need;    /* it is complete before this operation */
} oocdnn_movement;

/* What a schedule costs. */
typedef struct oocdnn_schedule_totals {
  double seconds;     /* of the step */
  double waiting;     /* of these, those in which the device waits for copies */
  double recomputing; /* those for recipes and squeezing */
  double late;        /* and those in which it waits for the host */
  int64_t peak_bytes;
} oocdnn_schedule_totals;

/* How policies are improved. */
typedef struct oocdnn_search {
  int64_t limit;  /* device bytes */
  int64_t trials; /* changes that are tried */
  int64_t seed;   /* of the random numbers */
  double warmth;  /* seconds of the step by which a change may make it worse at first */
  double seconds; /* at most; where these end the search, its result depends on the machine */
} oocdnn_search;

/* Blocks of PyTorch's caching allocator for CUDA are free, in use, or addresses of an expandable
 * segment without memory. */
typedef enum oocdnn_block_state {
  OOCDNN_BLOCK_STATE_FREE = 0,
  OOCDNN_BLOCK_STATE_USED = 1,
  OOCDNN_BLOCK_STATE_UNMAPPED = 2
} oocdnn_block_state;

/* A range of addresses, at most 2^43; both are multiples of 512. */
typedef struct oocdnn_heap_block {
  int64_t address;
  int64_t bytes;
  int64_t segment;    /* address of its segment */
  int32_t small;      /* 1: of the pool of small requests */
  int32_t expandable; /* 1: of an expandable segment */
  int32_t state;      /* oocdnn_block_state */
} oocdnn_heap_block;

/* The memory that an allocator holds for one stream, in order of address; blocks that are not
 * mapped count for nothing. Expandable blocks of one pool are taken for one segment, others for one
 * where their segment is the same and nothing is between them. */
typedef struct oocdnn_heap {
  const oocdnn_heap_block* blocks;
  int64_t block_count;
  int64_t small_bytes; /* largest request of the small pool; PyTorch: 1 MiB */
  int64_t small_page;  /* bytes of a page of its expandable segments; PyTorch: 2 MiB */
  int64_t large_page;  /* and of those of the other pool; PyTorch: 20 MiB */
  int32_t expandable;  /* 1: new segments are expandable */
} oocdnn_heap;

/* Sums over an allocator's blocks. */
typedef struct oocdnn_heap_totals {
  int64_t allocated;      /* bytes of blocks in use */
  int64_t reserved_small; /* bytes taken from the driver for small requests */
  int64_t reserved_large; /* and for others */
  int64_t base;           /* address of the first expandable segment for others; of the next one
                             where there is none */
} oocdnn_heap_totals;

/* An allocation of at most 2^43 bytes; with 0 bytes, the end of the first one of its number that
 * has not ended. Where there is none it does nothing. */
typedef struct oocdnn_heap_item {
  int64_t number;
  int64_t bytes;
} oocdnn_heap_item;

/* Items from one point at which the runtime may take memory, or give it back, to the next. */
typedef struct oocdnn_heap_group {
  int64_t items;
  int64_t frees;  /* of these, the first ones, which are ends in front of that point */
  int32_t steers; /* 0: it may not there */
} oocdnn_heap_group;

/* What a step asks of an allocator, in order; bytes are at most 2^60 in all. What it ends of the
 * step before is among the blocks in use: each carried allocation is the first one of its size that
 * is not persistent. */
typedef struct oocdnn_heap_step {
  const oocdnn_heap_item* items;
  const oocdnn_heap_group* groups; /* of all items, in order, or none */
  const oocdnn_heap_item* carried;
  const int64_t* persistent; /* addresses of what outlives every step */
  int64_t item_count;
  int64_t group_count;
  int64_t carried_count;
  int64_t persistent_count;
} oocdnn_heap_step;

/* How a steering is searched for. */
typedef struct oocdnn_steering_search {
  int64_t limit;  /* bytes that may be reserved */
  int64_t seed;   /* of the random numbers */
  double seconds; /* at most; where these end the search, its result depends on the machine */
} oocdnn_steering_search;

/* What the runtime takes of the allocator, or gives back. */
typedef struct oocdnn_heap_act {
  int64_t group; /* in which it does, behind the leading ends */
  int64_t address;
  int64_t bytes; /* 0: it gives back what it took there */
} oocdnn_heap_act;

/* Acts, in order, under which allocations leave few gaps. What no act gives back is given back at
 * the end of the step, or in front of a group in which the runtime may not act. */
typedef struct oocdnn_steering {
  const oocdnn_heap_act* acts;
  int64_t act_count;
  int64_t end;      /* address up to which everything is mapped for large requests beforehand */
  int64_t reserved; /* most bytes taken from the driver */
  int32_t found;    /* 0: none was found */
} oocdnn_steering;

/* A point at which an allocator's unused memory is given back in the midst of a step. */
typedef struct oocdnn_heap_trim {
  int64_t group; /* in which it is, behind the leading ends */
  int64_t bytes; /* that are given back there */
} oocdnn_heap_trim;

/* Trims, in order, under which a step's gaps do not pass a limit. */
typedef struct oocdnn_trimming {
  const oocdnn_heap_trim* trims;
  int64_t trim_count;
  int64_t reserved; /* most bytes taken from the driver */
  int32_t found;    /* 0: no trims help */
} oocdnn_trimming;

/* The direction of a copy: away from the device, or to it. */
typedef enum oocdnn_way { OOCDNN_WAY_OUT = 0, OOCDNN_WAY_IN = 1 } oocdnn_way;

typedef struct oocdnn_context oocdnn_context;
typedef struct oocdnn_host_memory oocdnn_host_memory;
typedef struct oocdnn_scheduler oocdnn_scheduler;
typedef struct oocdnn_allocator oocdnn_allocator;
typedef struct oocdnn_swapper oocdnn_swapper;

OOCDNN_API const char* oocdnn_version(void);
OOCDNN_API oocdnn_options oocdnn_default_options(void);

/* The text of the last failure in this thread; "" after a success. Valid until the next call. */
OOCDNN_API const char* oocdnn_last_error(void);
/* A number that goes with it, or 0: for OOCDNN_OUT_OF_MEMORY the least budget, workspace limit or
 * total workspace that works, for OOCDNN_FILE_ERROR the system's errno. */
OOCDNN_API int64_t oocdnn_last_error_detail(void);

OOCDNN_API oocdnn_status oocdnn_create(const oocdnn_options* options, oocdnn_context** context);
/* Waits for the context's work and frees everything. NULL is allowed. */
OOCDNN_API void oocdnn_destroy(oocdnn_context* context);

/* Runs one convolution. */
OOCDNN_API oocdnn_status oocdnn_run(oocdnn_context* context, const oocdnn_convolution* convolution,
                                    const oocdnn_operands* operands);

/* Runs a chain of `count` forward convolutions, each with what comes after it, of which each reads
 * what the one before it writes: `links[i]` with `operands[i]`. x is the first one's alone, y or z
 * the last one's; what is between two links is never in the caller's memory, and where the budget
 * allows never leaves the device. Stream, progress and limit of workspace are the first link's.
 * residuals: NULL, or for each link what it adds to its sum, shaped as that: the number of an
 * earlier link for what that writes, OOCDNN_RESIDUAL_X for the chain's x, or
 * OOCDNN_RESIDUAL_OPERAND for operands[i].residual, which must be NULL otherwise.
 * OOCDNN_UNSUPPORTED for links with beta, a prologue or sums, or, but for the last one, that save
 * for backward. */
#define OOCDNN_RESIDUAL_X (-1)
#define OOCDNN_RESIDUAL_OPERAND (-2)
OOCDNN_API oocdnn_status oocdnn_run_chain(oocdnn_context* context, const oocdnn_convolution* links,
                                          const oocdnn_operands* operands, const int64_t* residuals,
                                          int64_t count);

/* A chain's gradients, through all links for each tile of the batch: operands[i] has w and bias,
 * and dw and db where wanted; the first has x as `input` and dx, if wanted, as `x`; the last has dz
 * as `z`. What a link saved in a forward pass may be there as `saved`; where it is NULL it is
 * computed again. OOCDNN_UNSUPPORTED also with alpha, a scale or a residual, or where reproducible.
 */
OOCDNN_API oocdnn_status oocdnn_run_chain_backward(oocdnn_context* context,
                                                   const oocdnn_convolution* links,
                                                   const oocdnn_operands* operands, int64_t count);

/* The seconds that these two are predicted to take, by estimate: nothing is prepared, and no data
 * looked at. Tensors whose data is NULL count as in memory of oocdnn_allocate_host.
 * OOCDNN_OUT_OF_MEMORY where gradients are too many to be computed so. */
OOCDNN_API oocdnn_status oocdnn_price_chain(oocdnn_context* context,
                                            const oocdnn_convolution* links,
                                            const oocdnn_operands* operands,
                                            const int64_t* residuals, int64_t count,
                                            double* seconds);
OOCDNN_API oocdnn_status oocdnn_price_chain_backward(oocdnn_context* context,
                                                     const oocdnn_convolution* links,
                                                     const oocdnn_operands* operands, int64_t count,
                                                     double* seconds);

/* The bytes that a forward call with `saves` writes to operands.saved, which may be NULL here; 0:
 * there is nothing to save, and `saves` is best left 0. Of a maximum, for each element of z the
 * place of the winner in its window, in row-major order, and one more value where relu or clipped
 * relu are flat: the least number of bits. Without one, where the activation is one of the two, for
 * each element of y a bit that is 1 where a gradient passes. Behind elu, sigmoid, tanh, swish and
 * softplus instead, for each element of z, of y where averages are pooled, the slope: the
 * derivative at what was activated, in the type of the tensors and of the gradients; of a maximum
 * that of the winner, whose place follows in the least number of bytes, lowest first. Rows along W,
 * in the order N K [D] H, begin with a byte of their own; elements follow each other from the
 * lowest bit on. */
OOCDNN_API oocdnn_status oocdnn_saved_bytes(const oocdnn_convolution* convolution,
                                            const oocdnn_operands* operands, int64_t* bytes);

/* A convolution with stride and dilation 1, no padding, one group, alpha 1, beta 0, no pool, and
 * the context's limit of workspace. */
OOCDNN_API oocdnn_convolution oocdnn_default_convolution(int32_t direction, int32_t rank);
/* A dense tensor in memory: last axis fastest. Without a shape its extents and strides are 0. */
OOCDNN_API oocdnn_tensor oocdnn_dense_tensor(int32_t dtype, int32_t rank, const int64_t* shape,
                                             void* data);

/* Plans without running. `problem` is a problem string; operands are in pageable memory but for
 * those that it says are pinned (`x@pin`), on the device (`x@dev`) or in a file (`x@file`). The
 * plan is a JSON object with the fields that docs/reference/plan.md lists, `splits` as an array
 * over N, groups, K, C, D, H, W, and with `text`, the same for people, and `timeline`, the
 * predicted intervals of the first and the last steps. It belongs to the calling thread until its
 * next text.
 */
OOCDNN_API oocdnn_status oocdnn_plan(oocdnn_context* context, const char* problem,
                                     const char** json);
/* The same on the machine of a profile, which need not be this one: no device is opened, no engine
 * is prepared, and bytes are estimates. `profile` is a file; `budget` is as in the options, but in
 * bytes ("8GiB"), because a profile does not know how much memory is free; so is `busy_gpus`, but
 * for what a launcher says of this machine. */
OOCDNN_API oocdnn_status oocdnn_plan_for_profile(const char* profile, const char* problem,
                                                 const char* budget, const char* busy_gpus,
                                                 const char** json);
/* What a plan of the caller's own would take, as the JSON of oocdnn_plan; `plan` as in
 * docs/reference/plan.md. Nothing is prepared: bytes are estimates, and the budget bounds none. */
OOCDNN_API oocdnn_status oocdnn_price(oocdnn_context* context, const char* problem,
                                      const char* plan, const char** json);
/* Prepares such a plan, and follows it in calls of the problem with the operands there. */
OOCDNN_API oocdnn_status oocdnn_use_plan(oocdnn_context* context, const char* problem,
                                         const char* plan);
/* Removes the file in which plans are remembered from one process to the next, see OOCDNN_PLANS.
 * `path` (may be NULL) receives where it was, a text of the calling thread; "": there is none. */
OOCDNN_API oocdnn_status oocdnn_forget_plans(const char** path);
/* Plans for the problem that would fit, by estimate, with the operands where the string says: the
 * `best` that the search found, fastest first, then `random` others, the same for the same seed. A
 * JSON array of objects with `plan`, `text`, `engine`, `predicted_seconds` and `device_bytes`. */
OOCDNN_API oocdnn_status oocdnn_candidates(oocdnn_context* context, const char* problem,
                                           int32_t best, int32_t random, int64_t seed,
                                           const char** json);
/* Plans a call whose operands would all be on the device; their data is not looked at. `budget`
 * bounds the device bytes, 0: the context's. With a workspace of `workspace_bytes`, and the same
 * `workspace_limit`, oocdnn_run then books nothing else. */
OOCDNN_API oocdnn_status oocdnn_plan_in_core(oocdnn_context* context,
                                             const oocdnn_convolution* convolution,
                                             const oocdnn_operands* operands, int64_t budget,
                                             int64_t* workspace_bytes);
/* The problem string of a call, as it stands in logs; a text of the calling thread, too. */
OOCDNN_API oocdnn_status oocdnn_problem_text(const oocdnn_convolution* convolution,
                                             const oocdnn_operands* operands, const char** text);

/* The device of a context, "cpu" or "cuda:N", or its devices, separated by commas; the text lives
 * as long as the context. */
OOCDNN_API oocdnn_status oocdnn_device_name(oocdnn_context* context, const char** name);

/* Host memory of exactly `bytes` that the context's device reaches at full speed (pinned where it
 * is a GPU), elements not set. It may outlive the context. */
OOCDNN_API oocdnn_status oocdnn_allocate_host(oocdnn_context* context, int64_t bytes,
                                              oocdnn_host_memory** memory);
/* Makes memory of the caller's as good, until oocdnn_free_host, which must come before that memory
 * goes. */
OOCDNN_API oocdnn_status oocdnn_pin(oocdnn_context* context, void* data, int64_t bytes,
                                    oocdnn_host_memory** memory);
/* How many bytes a program may pin that nobody asked it to, and as many again for results that it
 * makes: 0 where the context's device gains nothing from that, or OOCDNN_AUTO_PIN=0. */
OOCDNN_API oocdnn_status oocdnn_auto_pin_bytes(oocdnn_context* context, int64_t* bytes);
/* NULL for NULL. */
OOCDNN_API void* oocdnn_host_data(const oocdnn_host_memory* memory);
/* Makes ordinary memory of it, pageable and inherited by forked children, which stays where it is
 * until oocdnn_free_host. No call may be using it. NULL is allowed. */
OOCDNN_API void oocdnn_unpin(oocdnn_host_memory* memory);
/* No call may be using it. NULL is allowed. */
OOCDNN_API void oocdnn_free_host(oocdnn_host_memory* memory);

OOCDNN_API oocdnn_status oocdnn_get_stats(oocdnn_context* context, oocdnn_stats* stats);
/* Gives the context's device memory back until the next call. */
OOCDNN_API oocdnn_status oocdnn_release(oocdnn_context* context);
/* The timeline since creation or the last take, as Chrome trace JSON. Needs options.trace. */
OOCDNN_API oocdnn_status oocdnn_take_trace(oocdnn_context* context, const char** json);
/* Completes what is known of this machine, which plans rest on: the rates of all types of elements
 * and directions, with tiles of many sizes; minutes on a GPU. What has been measured is not again,
 * so it may be interrupted: `progress` (may be NULL) is told after each piece, which is then kept.
 * `path` (may be NULL) receives where, a text of the calling thread. */
OOCDNN_API oocdnn_status oocdnn_calibrate(oocdnn_context* context, oocdnn_progress progress,
                                          void* progress_user, const char** path);
/* Has what is known of this machine agree with calls of a problem, which have been made with all
 * operands in host memory: `compute_seconds` (see oocdnn_stats) of each of `count`. The rate of
 * the plan's tile becomes that of the fastest; it is kept, and plans that are made later rest on
 * it. `json` receives an object with `rate` (its name), `before` and `after` in operations per
 * second, `predicted_seconds`, `refined_seconds` and `measured_seconds` of one tile, `samples`, and
 * `spread` (below 0: unknown), a text of the calling thread. */
OOCDNN_API oocdnn_status oocdnn_refine(oocdnn_context* context, const char* problem,
                                       const double* compute_seconds, int64_t count,
                                       const char** json);
/* What was found: version, devices, engines with their properties, what is missing, as JSON. */
OOCDNN_API oocdnn_status oocdnn_info(oocdnn_context* context, const char** json);
/* What a checking device has to complain about, one sentence per line; "" when all is well. */
OOCDNN_API oocdnn_status oocdnn_check_reports(oocdnn_context* context, const char** text);

/* Times a problem, given as a string, on parts of its batch, all operands on the device: of sizes
 * by the policy (oocdnn_batch_policy), on every engine, with as much workspace as the context
 * allows and with less. What of it is worth having for the whole `batch`, oocdnn_even_divisions
 * says. An array of the calling thread until its next call of this function. */
OOCDNN_API oocdnn_status oocdnn_measure_parts(oocdnn_context* context, const char* problem,
                                              int32_t policy, const oocdnn_micro_batch** choices,
                                              int64_t* count, int64_t* batch);

/* Workspace. These functions compute from numbers and need no context. Arrays that they hand out
 * belong to the calling thread until its next call of the same function. */

/* The sizes of micro-batches worth measuring, smallest first. `policy`: oocdnn_batch_policy. */
OOCDNN_API oocdnn_status oocdnn_micro_batch_sizes(int32_t policy, int64_t batch,
                                                  const int64_t** sizes, int64_t* length);
/* All divisions of `batch` samples of which none is at least as good as another in both seconds and
 * bytes, fastest first. OOCDNN_UNSUPPORTED above 2^20 samples. */
OOCDNN_API oocdnn_status oocdnn_pareto_divisions(const oocdnn_micro_batch* choices, int64_t count,
                                                 int64_t batch, const oocdnn_division** divisions,
                                                 int64_t* length);
/* The same of divisions with parts of one choice alone: what a call with a workspace limit runs. */
OOCDNN_API oocdnn_status oocdnn_even_divisions(const oocdnn_micro_batch* choices, int64_t count,
                                               int64_t batch, const oocdnn_division** divisions,
                                               int64_t* length);
/* The fastest of all whose workspace is at most `limit` bytes; OOCDNN_OUT_OF_MEMORY without. */
OOCDNN_API oocdnn_status oocdnn_divide_batch(const oocdnn_micro_batch* choices, int64_t count,
                                             int64_t batch, int64_t limit,
                                             const oocdnn_division** division);
/* Divides a workspace of `total` bytes among kernels that hold their shares at once, so that their
 * seconds add up to the least. Kernel k has `counts[k]` options, `options[k]`; `chosen[k]` becomes
 * the index of one. OOCDNN_OUT_OF_MEMORY where the least workspaces are more than `total` in all.
 * Exact, but for instances far from those of networks: see least_seconds. */
OOCDNN_API oocdnn_status oocdnn_divide_workspace(const oocdnn_workspace_option* const* options,
                                                 const int64_t* counts, int64_t kernels,
                                                 int64_t total, int64_t* chosen,
                                                 oocdnn_workspace_division* division);

/* Training steps within a limit of device bytes. These functions compute from numbers and need no
 * context. Calls on one scheduler take turns. */

/* What makes schedules of a step, which is copied. */
OOCDNN_API oocdnn_status oocdnn_create_scheduler(const oocdnn_training_step* step,
                                                 oocdnn_scheduler** scheduler);
/* NULL is allowed. */
OOCDNN_API void oocdnn_destroy_scheduler(oocdnn_scheduler* scheduler);
/* The positions under which the policies, one for each saved tensor, wait least for copies within
 * `limit` bytes. Where no positions fit, the peak passes the limit. The policy of what is needed
 * before it has been copied away becomes OOCDNN_POLICY_KEEP, that of a tensor whose smaller form a
 * recipe would have to read and cannot, OOCDNN_POLICY_SWAP. Each of these may be NULL: `movements`
 * receives one for each saved tensor, `bytes_at` the device bytes at each position, `waits` the
 * seconds of waiting for each saved tensor. */
OOCDNN_API oocdnn_status oocdnn_make_schedule(oocdnn_scheduler* scheduler, int64_t limit,
                                              int32_t* policies, oocdnn_schedule_totals* totals,
                                              oocdnn_movement* movements, int64_t* bytes_at,
                                              double* waits);
/* Changes policies, a few at a time, for a schedule that passes the limit by fewer bytes or, where
 * it does not, is faster. Equal arguments give equal results, unless the seconds end the search.
 * `progress` (may be NULL) is told of trials every few milliseconds, and ends the search with
 * OOCDNN_INTERRUPTED; the policies are the best so far then, too. */
OOCDNN_API oocdnn_status oocdnn_improve_policies(oocdnn_scheduler* scheduler,
                                                 const oocdnn_search* search,
                                                 oocdnn_progress progress, void* progress_user,
                                                 int32_t* policies, oocdnn_schedule_totals* totals);

/* Simulation of PyTorch's caching allocator for CUDA, for one stream, with its default settings.
 * These functions compute from numbers and need no context. Calls on one allocator take turns.
 * Arrays that they hand out belong to the calling thread until its next call of the same function.
 */

OOCDNN_API oocdnn_status oocdnn_create_allocator(const oocdnn_heap* heap,
                                                 oocdnn_allocator** allocator);
/* NULL is allowed. */
OOCDNN_API void oocdnn_destroy_allocator(oocdnn_allocator* allocator);
/* `block` receives that of a request for 0 to 2^43 bytes. */
OOCDNN_API oocdnn_status oocdnn_allocate_block(oocdnn_allocator* allocator, int64_t bytes,
                                               oocdnn_heap_block* block);
/* `address` is that of a block in use. */
OOCDNN_API oocdnn_status oocdnn_free_block(oocdnn_allocator* allocator, int64_t address);
/* Gives segments and pages without a block in use back to the driver. */
OOCDNN_API oocdnn_status oocdnn_trim_heap(oocdnn_allocator* allocator);
/* Maps an allocator with expandable segments up to the address `end`, at most 2^43 behind the base,
 * for large requests: by requests that are freed again, whose bytes are `sizes`. */
OOCDNN_API oocdnn_status oocdnn_fill_heap(oocdnn_allocator* allocator, int64_t end,
                                          const int64_t** sizes, int64_t* length);
OOCDNN_API oocdnn_status oocdnn_heap_sums(oocdnn_allocator* allocator, oocdnn_heap_totals* totals);
/* All blocks in order of address. */
OOCDNN_API oocdnn_status oocdnn_heap_blocks(oocdnn_allocator* allocator,
                                            const oocdnn_heap_block** blocks, int64_t* length);
/* The totals after two such steps from the heap on, whose unused memory is given back first. */
OOCDNN_API oocdnn_status oocdnn_simulate_heap(const oocdnn_heap* heap,
                                              const oocdnn_heap_step* requests,
                                              oocdnn_heap_totals* totals);
/* Looks for acts under which two such steps, whose items are in groups, reserve no more than the
 * limit, in simulation. Equal arguments give equal results, unless the seconds end the search.
 * There are none without expandable segments. `progress` (may be NULL) is told of tries every few
 * milliseconds, and ends the search with OOCDNN_INTERRUPTED. The acts belong to the calling thread
 * until its next call of this function. */
OOCDNN_API oocdnn_status oocdnn_steer_heap(const oocdnn_heap* heap,
                                           const oocdnn_heap_step* requests,
                                           const oocdnn_steering_search* search,
                                           oocdnn_progress progress, void* progress_user,
                                           oocdnn_steering* steering);
/* Looks for trims under which a few such steps, whose items are in groups, reserve no more than the
 * limit, in simulation. The trims belong to the calling thread until its next call of this
 * function. */
OOCDNN_API oocdnn_status oocdnn_find_trims(const oocdnn_heap* heap,
                                           const oocdnn_heap_step* requests, int64_t limit,
                                           oocdnn_trimming* trimming);

/* Copies between the memory of GPU `ordinal` and page-locked host memory, beside the work of the
 * caller's streams, of the GPU's primary context. Calls on one swapper take turns. `stream` is a
 * CUstream; 0 is the default stream. */

OOCDNN_API oocdnn_status oocdnn_create_swapper(int32_t ordinal, oocdnn_swapper** swapper);
/* Waits for all copies, and frees all slabs. NULL is allowed. */
OOCDNN_API void oocdnn_destroy_swapper(oocdnn_swapper* swapper);
/* `slab` receives the address of page-locked host memory of so many bytes, 1 or more. */
OOCDNN_API oocdnn_status oocdnn_allocate_slab(oocdnn_swapper* swapper, int64_t bytes,
                                              uint64_t* slab);
/* The same of memory of another GPU, which this one has to reach. The slab belongs to the swapper
 * like others: the memory is the other GPU's, and the allocation this process's. */
OOCDNN_API oocdnn_status oocdnn_borrow_slab(oocdnn_swapper* swapper, int32_t ordinal, int64_t bytes,
                                            uint64_t* slab);
/* Copies between this GPU and host memory go over the link of GPU `ordinal` too, through some
 * 50 MB of its memory; this GPU has to reach it. Once for each GPU; there is no way back. */
OOCDNN_API oocdnn_status oocdnn_borrow_link(oocdnn_swapper* swapper, int32_t ordinal);
/* Waits for all copies first. */
OOCDNN_API oocdnn_status oocdnn_free_slab(oocdnn_swapper* swapper, uint64_t slab);
/* Copies `bytes` bytes, from the beginning of the slab on, when the stream has arrived here.
 * `ticket` is of one oocdnn_wait_for_copy. */
OOCDNN_API oocdnn_status oocdnn_start_copy(oocdnn_swapper* swapper, int32_t way, uint64_t stream,
                                           uint64_t device_address, uint64_t slab, int64_t bytes,
                                           int64_t* ticket);
/* Has the stream wait for the end of the copy, whose ticket ends. */
OOCDNN_API oocdnn_status oocdnn_wait_for_copy(oocdnn_swapper* swapper, int64_t ticket,
                                              uint64_t stream);
/* `done` receives 1 where the copy has ended, else 0. */
OOCDNN_API oocdnn_status oocdnn_copy_done(oocdnn_swapper* swapper, int64_t ticket, int32_t* done);

#ifdef __cplusplus
}
#endif

#endif /* OOCDNN_H_ */
