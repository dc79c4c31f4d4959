"""The C interface as cffi and Python see it.

Written by native/capi/make_cdefs.py from native/capi/oocdnn.h: change the header, then run that.
"""

import enum

VERSION = "0.1.0"


class Status(enum.IntEnum):
    """oocdnn_status."""

    OK = 0
    INVALID_PROBLEM = 1
    INVALID_DTYPE = 2
    OUT_OF_MEMORY = 3
    UNSUPPORTED = 4
    DEVICE_ERROR = 5
    INTERRUPTED = 6
    FILE_ERROR = 7
    INTERNAL = 8


class DType(enum.IntEnum):
    """oocdnn_dtype."""

    FLOAT32 = 0
    FLOAT64 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    BYTE = 4


class Direction(enum.IntEnum):
    """oocdnn_direction."""

    FORWARD = 0
    BACKWARD_DATA = 1
    BACKWARD_FILTER = 2
    BACKWARD_BIAS = 3


class Mode(enum.IntEnum):
    """oocdnn_mode."""

    CROSS_CORRELATION = 0
    CONVOLUTION = 1


class Math(enum.IntEnum):
    """oocdnn_math."""

    FP32 = 0
    TF32 = 1
    FP32X3 = 2
    FP32_FAST = 3


class Activation(enum.IntEnum):
    """oocdnn_activation."""

    IDENTITY = 0
    RELU = 1
    CLIPPED_RELU = 2
    ELU = 3
    SIGMOID = 4
    TANH = 5
    SWISH = 6
    SOFTPLUS = 7


class PoolMode(enum.IntEnum):
    """oocdnn_pool_mode."""

    NONE = 0
    MAX = 1
    AVERAGE = 2
    AVERAGE_INSIDE = 3


class BatchPolicy(enum.IntEnum):
    """oocdnn_batch_policy."""

    UNDIVIDED = 0
    POWERS_OF_TWO = 1
    ALL = 2


class Policy(enum.IntEnum):
    """oocdnn_policy."""

    KEEP = 0
    SWAP = 1
    SQUEEZE = 2
    RECIPE = 3


class BlockState(enum.IntEnum):
    """oocdnn_block_state."""

    FREE = 0
    USED = 1
    UNMAPPED = 2


class Way(enum.IntEnum):
    """oocdnn_way."""

    OUT = 0
    IN = 1


CDEF = """
typedef enum oocdnn_status {
  OOCDNN_OK = 0,
  OOCDNN_INVALID_PROBLEM = 1,
  OOCDNN_INVALID_DTYPE = 2,
  OOCDNN_OUT_OF_MEMORY = 3,
  OOCDNN_UNSUPPORTED = 4,
  OOCDNN_DEVICE_ERROR = 5,
  OOCDNN_INTERRUPTED = 6,
  OOCDNN_FILE_ERROR = 7,
  OOCDNN_INTERNAL = 8
} oocdnn_status;
typedef enum oocdnn_dtype {
  OOCDNN_FLOAT32 = 0,
  OOCDNN_FLOAT64 = 1,
  OOCDNN_FLOAT16 = 2,
  OOCDNN_BFLOAT16 = 3,
  OOCDNN_BYTE = 4
} oocdnn_dtype;
typedef enum oocdnn_direction {
  OOCDNN_FORWARD = 0,
  OOCDNN_BACKWARD_DATA = 1,
  OOCDNN_BACKWARD_FILTER = 2,
  OOCDNN_BACKWARD_BIAS = 3
} oocdnn_direction;
typedef enum oocdnn_mode {
  OOCDNN_CROSS_CORRELATION = 0,
  OOCDNN_CONVOLUTION = 1
} oocdnn_mode;
typedef enum oocdnn_math {
  OOCDNN_MATH_FP32 = 0,
  OOCDNN_MATH_TF32 = 1,
  OOCDNN_MATH_FP32X3 = 2,
  OOCDNN_MATH_FP32_FAST = 3
} oocdnn_math;
typedef enum oocdnn_activation {
  OOCDNN_IDENTITY = 0,
  OOCDNN_RELU = 1,
  OOCDNN_CLIPPED_RELU = 2,
  OOCDNN_ELU = 3,
  OOCDNN_SIGMOID = 4,
  OOCDNN_TANH = 5,
  OOCDNN_SWISH = 6,
  OOCDNN_SOFTPLUS = 7
} oocdnn_activation;
typedef enum oocdnn_pool_mode {
  OOCDNN_POOL_MODE_NONE = 0,
  OOCDNN_POOL_MODE_MAX = 1,
  OOCDNN_POOL_MODE_AVERAGE = 2,
  OOCDNN_POOL_MODE_AVERAGE_INSIDE = 3
} oocdnn_pool_mode;
typedef struct oocdnn_pool {
  int32_t mode;
  int32_t ceil;
  int64_t window[3];
  int64_t stride[3];
  int64_t pad_before[3];
  int64_t pad_after[3];
} oocdnn_pool;
typedef struct oocdnn_tensor {
  void* data;
  int64_t offset;
  int32_t fd;
  int32_t dtype;
  int32_t rank;
  int32_t reserved;
  int64_t shape[5];
  int64_t stride[5];
} oocdnn_tensor;
typedef int (*oocdnn_progress)(void* user, int64_t tiles_done, int64_t tiles);
typedef struct oocdnn_convolution {
  int32_t direction;
  int32_t rank;
  int64_t pad_before[3];
  int64_t pad_after[3];
  int64_t stride[3];
  int64_t dilation[3];
  int64_t groups;
  int32_t mode;
  int32_t math;
  double alpha;
  double beta;
  int32_t activation;
  int32_t saves;
  double activation_parameter;
  double residual_alpha;
  oocdnn_pool pool;
  int32_t prologue_activation;
  int32_t reserved;
  double prologue_parameter;
  oocdnn_progress progress;
  void* progress_user;
  void* stream;
  void* workspace;
  int64_t workspace_bytes;
  int64_t workspace_limit;
} oocdnn_convolution;
typedef struct oocdnn_operands {
  const oocdnn_tensor* x;
  const oocdnn_tensor* w;
  const oocdnn_tensor* y;
  const oocdnn_tensor* bias;
  const oocdnn_tensor* scale;
  const oocdnn_tensor* residual;
  const oocdnn_tensor* z;
  const oocdnn_tensor* saved;
  const oocdnn_tensor* input;
  const oocdnn_tensor* dw;
  const oocdnn_tensor* db;
  const oocdnn_tensor* prologue;
  const oocdnn_tensor* sums;
} oocdnn_operands;
typedef struct oocdnn_options {
  const char* device;
  const char* budget;
  const char* engine;
  const char* wrap;
  const char* profile;
  const char* planning;
  const char* workspace;
  const char* busy_gpus;
  const char* borrow;
  int32_t threads;
  int32_t reproducible;
  int32_t trace;
  int32_t math;
  int64_t host_cap;
  double link_gb_per_s;
  double planning_seconds;
} oocdnn_options;
typedef struct oocdnn_stats {
  int64_t tiles;
  int64_t peak_device_bytes;
  int64_t overhead_device_bytes;
  int64_t bytes_h2d;
  int64_t bytes_d2h;
  int64_t device_allocations;
  int64_t prepared;
  int64_t budget_bytes;
  double seconds;
  double fetch_seconds;
  double compute_seconds;
  double drain_seconds;
  double overlap;
  double predicted_seconds;
  double planning_seconds;
  int64_t split[7];
  char engine[32];
} oocdnn_stats;
typedef enum oocdnn_batch_policy {
  OOCDNN_BATCH_POLICY_UNDIVIDED = 0,
  OOCDNN_BATCH_POLICY_POWERS_OF_TWO = 1,
  OOCDNN_BATCH_POLICY_ALL = 2
} oocdnn_batch_policy;
typedef struct oocdnn_micro_batch {
  int64_t samples;
  double seconds;
  int64_t workspace_bytes;
} oocdnn_micro_batch;
typedef struct oocdnn_parts {
  int64_t choice;
  int64_t count;
} oocdnn_parts;
typedef struct oocdnn_division {
  double seconds;
  int64_t workspace_bytes;
  const oocdnn_parts* parts;
  int64_t length;
} oocdnn_division;
typedef struct oocdnn_workspace_option {
  double seconds;
  int64_t workspace_bytes;
} oocdnn_workspace_option;
typedef struct oocdnn_workspace_division {
  double seconds;
  int64_t workspace_bytes;
  double least_seconds;
} oocdnn_workspace_division;
typedef struct oocdnn_step_operation {
  double seconds;
  double host;
  int64_t fixed_bytes;
  int64_t begin_bytes;
} oocdnn_step_operation;
typedef struct oocdnn_step_tensor {
  int64_t bytes;
  int64_t produced;
  int64_t last_forward_use;
  int64_t first_use;
  int64_t last_use;
  int64_t squeezed_bytes;
  double squeeze_seconds;
  double squeeze_host;
  int64_t recipes;
  int32_t movable;
  int32_t squeezed_whole;
} oocdnn_step_tensor;
typedef struct oocdnn_step_recipe {
  double seconds;
  double host;
  int64_t temporary_bytes;
  int64_t inputs;
} oocdnn_step_recipe;
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
  double to_host;
  double from_host;
  double latency;
  double host;
} oocdnn_training_step;
typedef enum oocdnn_policy {
  OOCDNN_POLICY_KEEP = 0,
  OOCDNN_POLICY_SWAP = 1,
  OOCDNN_POLICY_SQUEEZE = 2,
  OOCDNN_POLICY_RECIPE = 3
} oocdnn_policy;
typedef struct oocdnn_movement {
  int64_t release;
  int64_t fetch;
  int64_t need;
} oocdnn_movement;
typedef struct oocdnn_schedule_totals {
  double seconds;
  double waiting;
  double recomputing;
  double late;
  int64_t peak_bytes;
} oocdnn_schedule_totals;
typedef struct oocdnn_search {
  int64_t limit;
  int64_t trials;
  int64_t seed;
  double warmth;
  double seconds;
} oocdnn_search;
typedef enum oocdnn_block_state {
  OOCDNN_BLOCK_STATE_FREE = 0,
  OOCDNN_BLOCK_STATE_USED = 1,
  OOCDNN_BLOCK_STATE_UNMAPPED = 2
} oocdnn_block_state;
typedef struct oocdnn_heap_block {
  int64_t address;
  int64_t bytes;
  int64_t segment;
  int32_t small;
  int32_t expandable;
  int32_t state;
} oocdnn_heap_block;
typedef struct oocdnn_heap {
  const oocdnn_heap_block* blocks;
  int64_t block_count;
  int64_t small_bytes;
  int64_t small_page;
  int64_t large_page;
  int32_t expandable;
} oocdnn_heap;
typedef struct oocdnn_heap_totals {
  int64_t allocated;
  int64_t reserved_small;
  int64_t reserved_large;
  int64_t base;
} oocdnn_heap_totals;
typedef struct oocdnn_heap_item {
  int64_t number;
  int64_t bytes;
} oocdnn_heap_item;
typedef struct oocdnn_heap_group {
  int64_t items;
  int64_t frees;
  int32_t steers;
} oocdnn_heap_group;
typedef struct oocdnn_heap_step {
  const oocdnn_heap_item* items;
  const oocdnn_heap_group* groups;
  const oocdnn_heap_item* carried;
  const int64_t* persistent;
  int64_t item_count;
  int64_t group_count;
  int64_t carried_count;
  int64_t persistent_count;
} oocdnn_heap_step;
typedef struct oocdnn_steering_search {
  int64_t limit;
  int64_t seed;
  double seconds;
} oocdnn_steering_search;
typedef struct oocdnn_heap_act {
  int64_t group;
  int64_t address;
  int64_t bytes;
} oocdnn_heap_act;
typedef struct oocdnn_steering {
  const oocdnn_heap_act* acts;
  int64_t act_count;
  int64_t end;
  int64_t reserved;
  int32_t found;
} oocdnn_steering;
typedef struct oocdnn_heap_trim {
  int64_t group;
  int64_t bytes;
} oocdnn_heap_trim;
typedef struct oocdnn_trimming {
  const oocdnn_heap_trim* trims;
  int64_t trim_count;
  int64_t reserved;
  int32_t found;
} oocdnn_trimming;
typedef enum oocdnn_way { OOCDNN_WAY_OUT = 0, OOCDNN_WAY_IN = 1 } oocdnn_way;
typedef struct oocdnn_context oocdnn_context;
typedef struct oocdnn_host_memory oocdnn_host_memory;
typedef struct oocdnn_scheduler oocdnn_scheduler;
typedef struct oocdnn_allocator oocdnn_allocator;
typedef struct oocdnn_swapper oocdnn_swapper;
const char* oocdnn_version(void);
oocdnn_options oocdnn_default_options(void);
const char* oocdnn_last_error(void);
int64_t oocdnn_last_error_detail(void);
oocdnn_status oocdnn_create(const oocdnn_options* options, oocdnn_context** context);
void oocdnn_destroy(oocdnn_context* context);
oocdnn_status oocdnn_run(oocdnn_context* context, const oocdnn_convolution* convolution,
                                    const oocdnn_operands* operands);
oocdnn_status oocdnn_run_chain(oocdnn_context* context, const oocdnn_convolution* links,
                                          const oocdnn_operands* operands, const int64_t* residuals,
                                          int64_t count);
oocdnn_status oocdnn_run_chain_backward(oocdnn_context* context,
                                                   const oocdnn_convolution* links,
                                                   const oocdnn_operands* operands, int64_t count);
oocdnn_status oocdnn_price_chain(oocdnn_context* context,
                                            const oocdnn_convolution* links,
                                            const oocdnn_operands* operands,
                                            const int64_t* residuals, int64_t count,
                                            double* seconds);
oocdnn_status oocdnn_price_chain_backward(oocdnn_context* context,
                                                     const oocdnn_convolution* links,
                                                     const oocdnn_operands* operands, int64_t count,
                                                     double* seconds);
oocdnn_status oocdnn_saved_bytes(const oocdnn_convolution* convolution,
                                            const oocdnn_operands* operands, int64_t* bytes);
oocdnn_convolution oocdnn_default_convolution(int32_t direction, int32_t rank);
oocdnn_tensor oocdnn_dense_tensor(int32_t dtype, int32_t rank, const int64_t* shape,
                                             void* data);
oocdnn_status oocdnn_plan(oocdnn_context* context, const char* problem,
                                     const char** json);
oocdnn_status oocdnn_plan_for_profile(const char* profile, const char* problem,
                                                 const char* budget, const char* busy_gpus,
                                                 const char** json);
oocdnn_status oocdnn_price(oocdnn_context* context, const char* problem,
                                      const char* plan, const char** json);
oocdnn_status oocdnn_use_plan(oocdnn_context* context, const char* problem,
                                         const char* plan);
oocdnn_status oocdnn_forget_plans(const char** path);
oocdnn_status oocdnn_candidates(oocdnn_context* context, const char* problem,
                                           int32_t best, int32_t random, int64_t seed,
                                           const char** json);
oocdnn_status oocdnn_plan_in_core(oocdnn_context* context,
                                             const oocdnn_convolution* convolution,
                                             const oocdnn_operands* operands, int64_t budget,
                                             int64_t* workspace_bytes);
oocdnn_status oocdnn_problem_text(const oocdnn_convolution* convolution,
                                             const oocdnn_operands* operands, const char** text);
oocdnn_status oocdnn_device_name(oocdnn_context* context, const char** name);
oocdnn_status oocdnn_allocate_host(oocdnn_context* context, int64_t bytes,
                                              oocdnn_host_memory** memory);
oocdnn_status oocdnn_pin(oocdnn_context* context, void* data, int64_t bytes,
                                    oocdnn_host_memory** memory);
oocdnn_status oocdnn_auto_pin_bytes(oocdnn_context* context, int64_t* bytes);
void* oocdnn_host_data(const oocdnn_host_memory* memory);
void oocdnn_unpin(oocdnn_host_memory* memory);
void oocdnn_free_host(oocdnn_host_memory* memory);
oocdnn_status oocdnn_get_stats(oocdnn_context* context, oocdnn_stats* stats);
oocdnn_status oocdnn_release(oocdnn_context* context);
oocdnn_status oocdnn_take_trace(oocdnn_context* context, const char** json);
oocdnn_status oocdnn_calibrate(oocdnn_context* context, oocdnn_progress progress,
                                          void* progress_user, const char** path);
oocdnn_status oocdnn_refine(oocdnn_context* context, const char* problem,
                                       const double* compute_seconds, int64_t count,
                                       const char** json);
oocdnn_status oocdnn_info(oocdnn_context* context, const char** json);
oocdnn_status oocdnn_check_reports(oocdnn_context* context, const char** text);
oocdnn_status oocdnn_measure_parts(oocdnn_context* context, const char* problem,
                                              int32_t policy, const oocdnn_micro_batch** choices,
                                              int64_t* count, int64_t* batch);
oocdnn_status oocdnn_micro_batch_sizes(int32_t policy, int64_t batch,
                                                  const int64_t** sizes, int64_t* length);
oocdnn_status oocdnn_pareto_divisions(const oocdnn_micro_batch* choices, int64_t count,
                                                 int64_t batch, const oocdnn_division** divisions,
                                                 int64_t* length);
oocdnn_status oocdnn_even_divisions(const oocdnn_micro_batch* choices, int64_t count,
                                               int64_t batch, const oocdnn_division** divisions,
                                               int64_t* length);
oocdnn_status oocdnn_divide_batch(const oocdnn_micro_batch* choices, int64_t count,
                                             int64_t batch, int64_t limit,
                                             const oocdnn_division** division);
oocdnn_status oocdnn_divide_workspace(const oocdnn_workspace_option* const* options,
                                                 const int64_t* counts, int64_t kernels,
                                                 int64_t total, int64_t* chosen,
                                                 oocdnn_workspace_division* division);
oocdnn_status oocdnn_create_scheduler(const oocdnn_training_step* step,
                                                 oocdnn_scheduler** scheduler);
void oocdnn_destroy_scheduler(oocdnn_scheduler* scheduler);
oocdnn_status oocdnn_make_schedule(oocdnn_scheduler* scheduler, int64_t limit,
                                              int32_t* policies, oocdnn_schedule_totals* totals,
                                              oocdnn_movement* movements, int64_t* bytes_at,
                                              double* waits);
oocdnn_status oocdnn_improve_policies(oocdnn_scheduler* scheduler,
                                                 const oocdnn_search* search,
                                                 oocdnn_progress progress, void* progress_user,
                                                 int32_t* policies, oocdnn_schedule_totals* totals);
oocdnn_status oocdnn_create_allocator(const oocdnn_heap* heap,
                                                 oocdnn_allocator** allocator);
void oocdnn_destroy_allocator(oocdnn_allocator* allocator);
oocdnn_status oocdnn_allocate_block(oocdnn_allocator* allocator, int64_t bytes,
                                               oocdnn_heap_block* block);
oocdnn_status oocdnn_free_block(oocdnn_allocator* allocator, int64_t address);
oocdnn_status oocdnn_trim_heap(oocdnn_allocator* allocator);
oocdnn_status oocdnn_fill_heap(oocdnn_allocator* allocator, int64_t end,
                                          const int64_t** sizes, int64_t* length);
oocdnn_status oocdnn_heap_sums(oocdnn_allocator* allocator, oocdnn_heap_totals* totals);
oocdnn_status oocdnn_heap_blocks(oocdnn_allocator* allocator,
                                            const oocdnn_heap_block** blocks, int64_t* length);
oocdnn_status oocdnn_simulate_heap(const oocdnn_heap* heap,
                                              const oocdnn_heap_step* requests,
                                              oocdnn_heap_totals* totals);
oocdnn_status oocdnn_steer_heap(const oocdnn_heap* heap,
                                           const oocdnn_heap_step* requests,
                                           const oocdnn_steering_search* search,
                                           oocdnn_progress progress, void* progress_user,
                                           oocdnn_steering* steering);
oocdnn_status oocdnn_find_trims(const oocdnn_heap* heap,
                                           const oocdnn_heap_step* requests, int64_t limit,
                                           oocdnn_trimming* trimming);
oocdnn_status oocdnn_create_swapper(int32_t ordinal, oocdnn_swapper** swapper);
void oocdnn_destroy_swapper(oocdnn_swapper* swapper);
oocdnn_status oocdnn_allocate_slab(oocdnn_swapper* swapper, int64_t bytes,
                                              uint64_t* slab);
oocdnn_status oocdnn_borrow_slab(oocdnn_swapper* swapper, int32_t ordinal, int64_t bytes,
                                            uint64_t* slab);
oocdnn_status oocdnn_borrow_link(oocdnn_swapper* swapper, int32_t ordinal);
oocdnn_status oocdnn_free_slab(oocdnn_swapper* swapper, uint64_t slab);
oocdnn_status oocdnn_start_copy(oocdnn_swapper* swapper, int32_t way, uint64_t stream,
                                           uint64_t device_address, uint64_t slab, int64_t bytes,
                                           int64_t* ticket);
oocdnn_status oocdnn_wait_for_copy(oocdnn_swapper* swapper, int64_t ticket,
                                              uint64_t stream);
oocdnn_status oocdnn_copy_done(oocdnn_swapper* swapper, int64_t ticket, int32_t* done);
"""
