/* Declarations of the cuDNN 9 functions that the drop-in serves itself, in words of our own and
 * without the types, so that they can stand behind those of cudnn.h here or behind NVIDIA's, which
 * the compiler then compares.
 *
 * Arrays have one entry per axis. What the functions mean is cuDNN's documentation. */
#pragma once

/* NOLINTBEGIN(readability-identifier-naming): the names are cuDNN's. */

#ifdef __cplusplus
extern "C" {
#endif

size_t cudnnGetVersion(void);
size_t cudnnGetMaxDeviceVersion(void);
size_t cudnnGetCudartVersion(void);
const char* cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char* message, size_t bytes);
cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value);
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream);
cudnnStatus_t cudnnGraphVersionCheck(void);
cudnnStatus_t cudnnOpsVersionCheck(void);
cudnnStatus_t cudnnCnnVersionCheck(void);
cudnnStatus_t cudnnAdvVersionCheck(void);

/* Descriptors of tensors and filters. */
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor);
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor,
                                         cudnnTensorFormat_t format, cudnnDataType_t data_type,
                                         int n, int c, int h, int w);
cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t descriptor,
                                           cudnnDataType_t data_type, int n, int c, int h, int w,
                                           int n_stride, int c_stride, int h_stride, int w_stride);
cudnnStatus_t cudnnGetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor,
                                         cudnnDataType_t* data_type, int* n, int* c, int* h, int* w,
                                         int* n_stride, int* c_stride, int* h_stride,
                                         int* w_stride);
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t descriptor,
                                         cudnnDataType_t data_type, int rank, const int* dims,
                                         const int* stride);
cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t descriptor,
                                           cudnnTensorFormat_t format, cudnnDataType_t data_type,
                                           int rank, const int* dims);
cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t descriptor, int requested,
                                         cudnnDataType_t* data_type, int* rank, int* dims,
                                         int* stride);
cudnnStatus_t cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t descriptor, size_t* size);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor);
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor,
                                         cudnnDataType_t data_type, cudnnTensorFormat_t format,
                                         int k, int c, int h, int w);
cudnnStatus_t cudnnGetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor,
                                         cudnnDataType_t* data_type, cudnnTensorFormat_t* format,
                                         int* k, int* c, int* h, int* w);
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t descriptor,
                                         cudnnDataType_t data_type, cudnnTensorFormat_t format,
                                         int rank, const int* dims);
cudnnStatus_t cudnnGetFilterNdDescriptor(cudnnFilterDescriptor_t descriptor, int requested,
                                         cudnnDataType_t* data_type, cudnnTensorFormat_t* format,
                                         int* rank, int* dims);
cudnnStatus_t cudnnGetFilterSizeInBytes(cudnnFilterDescriptor_t descriptor, size_t* size);

/* Descriptors of operations. */
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor);
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h,
                                              int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute_type);
cudnnStatus_t cudnnGetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int* pad_h,
                                              int* pad_w, int* u, int* v, int* dilation_h,
                                              int* dilation_w, cudnnConvolutionMode_t* mode,
                                              cudnnDataType_t* compute_type);
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t descriptor, int rank,
                                              const int* pad, const int* filter_stride,
                                              const int* dilation, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute_type);
cudnnStatus_t cudnnGetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t descriptor,
                                              int requested, int* rank, int* pad, int* stride,
                                              int* dilation, cudnnConvolutionMode_t* mode,
                                              cudnnDataType_t* compute_type);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor,
                                            int group_count);
cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor,
                                            int* group_count);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor,
                                          cudnnMathType_t math_type);
cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor,
                                          cudnnMathType_t* math_type);
cudnnStatus_t cudnnSetConvolutionReorderType(cudnnConvolutionDescriptor_t descriptor,
                                             cudnnReorderType_t reorder_type);
cudnnStatus_t cudnnGetConvolutionReorderType(cudnnConvolutionDescriptor_t descriptor,
                                             cudnnReorderType_t* reorder_type);
cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t conv,
                                                    cudnnTensorDescriptor_t input_tensor_desc,
                                                    cudnnFilterDescriptor_t descriptor, int* n,
                                                    int* c, int* h, int* w);
cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(cudnnConvolutionDescriptor_t conv,
                                                    cudnnTensorDescriptor_t input_tensor_desc,
                                                    cudnnFilterDescriptor_t descriptor, int rank,
                                                    int* dims);
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t descriptor);
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t descriptor,
                                           cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t relu_nan_opt, double coef);
cudnnStatus_t cudnnGetActivationDescriptor(cudnnActivationDescriptor_t descriptor,
                                           cudnnActivationMode_t* mode,
                                           cudnnNanPropagation_t* relu_nan_opt, double* coef);
cudnnStatus_t cudnnSetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t descriptor,
                                                    double swish_beta);
cudnnStatus_t cudnnGetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t descriptor,
                                                    double* swish_beta);
cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t descriptor);
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t descriptor,
                                          cudnnPoolingMode_t mode, cudnnNanPropagation_t nans,
                                          int window_height, int window_width, int vertical_padding,
                                          int horizontal_padding, int vertical_stride,
                                          int horizontal_stride);
cudnnStatus_t cudnnGetPooling2dDescriptor(cudnnPoolingDescriptor_t descriptor,
                                          cudnnPoolingMode_t* mode, cudnnNanPropagation_t* nans,
                                          int* window_height, int* window_width,
                                          int* vertical_padding, int* horizontal_padding,
                                          int* vertical_stride, int* horizontal_stride);
cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t descriptor,
                                          cudnnPoolingMode_t mode, cudnnNanPropagation_t nans,
                                          int rank, const int* window_dim, const int* padding,
                                          const int* stride);
cudnnStatus_t cudnnGetPoolingNdDescriptor(cudnnPoolingDescriptor_t descriptor, int requested,
                                          cudnnPoolingMode_t* mode, cudnnNanPropagation_t* nans,
                                          int* rank, int* window_dim, int* padding, int* stride);
cudnnStatus_t cudnnGetPooling2dForwardOutputDim(cudnnPoolingDescriptor_t descriptor,
                                                cudnnTensorDescriptor_t input_tensor_desc, int* n,
                                                int* c, int* h, int* w);
cudnnStatus_t cudnnGetPoolingNdForwardOutputDim(cudnnPoolingDescriptor_t descriptor,
                                                cudnnTensorDescriptor_t input_tensor_desc, int rank,
                                                int* dims);
cudnnStatus_t cudnnCreateOpTensorDescriptor(cudnnOpTensorDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyOpTensorDescriptor(cudnnOpTensorDescriptor_t descriptor);
cudnnStatus_t cudnnSetOpTensorDescriptor(cudnnOpTensorDescriptor_t descriptor,
                                         cudnnOpTensorOp_t op_tensor_op,
                                         cudnnDataType_t op_tensor_comp_type,
                                         cudnnNanPropagation_t op_tensor_nan_opt);
cudnnStatus_t cudnnGetOpTensorDescriptor(cudnnOpTensorDescriptor_t descriptor,
                                         cudnnOpTensorOp_t* op_tensor_op,
                                         cudnnDataType_t* op_tensor_comp_type,
                                         cudnnNanPropagation_t* op_tensor_nan_opt);
cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derived_bn_desc,
                                            cudnnTensorDescriptor_t x_desc,
                                            cudnnBatchNormMode_t mode);

/* Convolutions. */
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x_desc, const void* x,
                                      cudnnFilterDescriptor_t w_desc, const void* w,
                                      cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algo, void* workspace,
                                      size_t workspace_bytes, const void* beta,
                                      cudnnTensorDescriptor_t y_desc, void* y);
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, cudnnTensorDescriptor_t x_desc, const void* x,
    cudnnFilterDescriptor_t w_desc, const void* w, cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionFwdAlgo_t algo, void* workspace, size_t workspace_bytes, const void* alpha2,
    cudnnTensorDescriptor_t z_desc, const void* z, cudnnTensorDescriptor_t bias_desc,
    const void* bias, cudnnActivationDescriptor_t descriptor, cudnnTensorDescriptor_t y_desc,
    void* y);
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t w_desc, const void* w,
                                           cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algo, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           cudnnTensorDescriptor_t dx_desc, void* dx);
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t x_desc, const void* x,
                                             cudnnTensorDescriptor_t dy_desc, const void* dy,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* workspace,
                                             size_t workspace_bytes, const void* beta,
                                             cudnnFilterDescriptor_t dw_desc, void* dw);
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void* alpha,
                                           cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           const void* beta, cudnnTensorDescriptor_t db_desc,
                                           void* db);

/* Their algorithms. */
cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int* count);
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t src_desc, cudnnFilterDescriptor_t descriptor,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t dest_desc, int requested,
    int* returned, cudnnConvolutionFwdAlgoPerf_t* results);
cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc, cudnnFilterDescriptor_t w_desc,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y_desc, int requested, int* returned,
    cudnnConvolutionFwdAlgoPerf_t* results);
cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc, const void* x,
    cudnnFilterDescriptor_t w_desc, const void* w, cudnnConvolutionDescriptor_t conv,
    cudnnTensorDescriptor_t y_desc, void* y, int requested, int* returned,
    cudnnConvolutionFwdAlgoPerf_t* results, void* workspace, size_t workspace_bytes);
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc, cudnnFilterDescriptor_t w_desc,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y_desc,
    cudnnConvolutionFwdAlgo_t algo, size_t* bytes);
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int* count);
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, cudnnFilterDescriptor_t descriptor, cudnnTensorDescriptor_t diff_desc,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t grad_desc, int requested,
    int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results);
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w_desc, cudnnTensorDescriptor_t dy_desc,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t dx_desc, int requested,
    int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results);
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w_desc, const void* w,
    cudnnTensorDescriptor_t dy_desc, const void* dy, cudnnConvolutionDescriptor_t conv,
    cudnnTensorDescriptor_t dx_desc, void* dx, int requested, int* returned,
    cudnnConvolutionBwdDataAlgoPerf_t* results, void* workspace, size_t workspace_bytes);
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w_desc, cudnnTensorDescriptor_t dy_desc,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t dx_desc,
    cudnnConvolutionBwdDataAlgo_t algo, size_t* bytes);
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle, int* count);
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t src_desc, cudnnTensorDescriptor_t diff_desc,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t grad_desc, int requested,
    int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results);
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc, cudnnTensorDescriptor_t dy_desc,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t dw_desc, int requested,
    int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results);
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc, const void* x,
    cudnnTensorDescriptor_t dy_desc, const void* y, cudnnConvolutionDescriptor_t conv,
    cudnnFilterDescriptor_t dw_desc, void* dw, int requested, int* returned,
    cudnnConvolutionBwdFilterAlgoPerf_t* results, void* workspace, size_t workspace_bytes);
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc, cudnnTensorDescriptor_t dy_desc,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t grad_desc,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t* bytes);

/* What else a network needs. */
cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void* alpha,
                             cudnnTensorDescriptor_t a_desc, const void* a, const void* beta,
                             cudnnTensorDescriptor_t c_desc, void* c);
cudnnStatus_t cudnnOpTensor(cudnnHandle_t handle, cudnnOpTensorDescriptor_t descriptor,
                            const void* alpha1, cudnnTensorDescriptor_t a_desc, const void* a,
                            const void* alpha2, cudnnTensorDescriptor_t b_desc, const void* b,
                            const void* beta, cudnnTensorDescriptor_t c_desc, void* c);
cudnnStatus_t cudnnSetTensor(cudnnHandle_t handle, cudnnTensorDescriptor_t y_desc, void* y,
                             const void* value_ptr);
cudnnStatus_t cudnnScaleTensor(cudnnHandle_t handle, cudnnTensorDescriptor_t y_desc, void* y,
                               const void* alpha);
cudnnStatus_t cudnnTransformTensor(cudnnHandle_t handle, const void* alpha,
                                   cudnnTensorDescriptor_t x_desc, const void* x, const void* beta,
                                   cudnnTensorDescriptor_t y_desc, void* y);
cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t descriptor,
                                     const void* alpha, cudnnTensorDescriptor_t x_desc,
                                     const void* x, const void* beta,
                                     cudnnTensorDescriptor_t y_desc, void* y);
cudnnStatus_t cudnnActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t descriptor,
                                      const void* alpha, cudnnTensorDescriptor_t y_desc,
                                      const void* y, cudnnTensorDescriptor_t dy_desc,
                                      const void* dy, cudnnTensorDescriptor_t x_desc, const void* x,
                                      const void* beta, cudnnTensorDescriptor_t dx_desc, void* dx);
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, cudnnPoolingDescriptor_t descriptor,
                                  const void* alpha, cudnnTensorDescriptor_t x_desc, const void* x,
                                  const void* beta, cudnnTensorDescriptor_t y_desc, void* y);
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, cudnnPoolingDescriptor_t descriptor,
                                   const void* alpha, cudnnTensorDescriptor_t y_desc, const void* y,
                                   cudnnTensorDescriptor_t dy_desc, const void* dy,
                                   cudnnTensorDescriptor_t x_desc, const void* x, const void* beta,
                                   cudnnTensorDescriptor_t dx_desc, void* dx);
cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo,
                                  cudnnSoftmaxMode_t mode, const void* alpha,
                                  cudnnTensorDescriptor_t x_desc, const void* x, const void* beta,
                                  cudnnTensorDescriptor_t y_desc, void* y);
cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo,
                                   cudnnSoftmaxMode_t mode, const void* alpha,
                                   cudnnTensorDescriptor_t y_desc, const void* y,
                                   cudnnTensorDescriptor_t dy_desc, const void* dy,
                                   const void* beta, cudnnTensorDescriptor_t dx_desc, void* dx);
cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    cudnnTensorDescriptor_t x_desc, const void* x, cudnnTensorDescriptor_t y_desc, void* y,
    cudnnTensorDescriptor_t bn_scale_bias_mean_var_desc, const void* bn_scale, const void* bn_bias,
    const void* estimated_mean, const void* estimated_variance, double epsilon);

/* The graph API. */
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements);
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t* count, void* elements);
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t execution_plan,
                                  cudnnBackendDescriptor_t variant_pack);
cudnnStatus_t cudnnBackendPopulateCudaGraph(cudnnHandle_t handle,
                                            cudnnBackendDescriptor_t execution_plan,
                                            cudnnBackendDescriptor_t variant_pack,
                                            cudaGraph_t graph);
cudnnStatus_t cudnnBackendUpdateCudaGraph(cudnnHandle_t handle,
                                          cudnnBackendDescriptor_t execution_plan,
                                          cudnnBackendDescriptor_t variant_pack, cudaGraph_t graph);
cudnnStatus_t cudnnGetExecutionPlanWorkspaceSize(cudnnHandle_t handle,
                                                 cudnnBackendDescriptor_t execution_plan,
                                                 cudnnBackendDescriptor_t variant_pack,
                                                 size_t* workspace_size_in_bytes);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(readability-identifier-naming) */
