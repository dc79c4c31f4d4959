/* Declarations of the functions that compute and are handed on, or refused, and never served: in
 * the manner of cudnn_functions.h, behind the same types. */
#pragma once

/* NOLINTBEGIN(readability-identifier-naming): the names are cuDNN's. */

#ifdef __cplusplus
extern "C" {
#endif

cudnnStatus_t cudnnReduceTensor(cudnnHandle_t handle,
                                cudnnReduceTensorDescriptor_t reduce_tensor_desc, void* indices,
                                size_t indices_bytes, void* workspace, size_t workspace_bytes,
                                const void* alpha, cudnnTensorDescriptor_t a_desc, const void* a,
                                const void* beta, cudnnTensorDescriptor_t c_desc, void* c);
cudnnStatus_t cudnnTransformTensorEx(cudnnHandle_t handle,
                                     cudnnTensorTransformDescriptor_t trans_desc, const void* alpha,
                                     cudnnTensorDescriptor_t src_desc, const void* src_data,
                                     const void* beta, cudnnTensorDescriptor_t dest_desc,
                                     void* dest_data);
cudnnStatus_t cudnnTransformFilter(cudnnHandle_t handle,
                                   cudnnTensorTransformDescriptor_t trans_desc, const void* alpha,
                                   cudnnFilterDescriptor_t src_desc, const void* src_data,
                                   const void* beta, cudnnFilterDescriptor_t dest_desc,
                                   void* dest_data);
cudnnStatus_t cudnnIm2Col(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc, const void* x,
                          cudnnFilterDescriptor_t w_desc, cudnnConvolutionDescriptor_t conv_desc,
                          void* col_buffer);
cudnnStatus_t cudnnLRNCrossChannelForward(cudnnHandle_t handle, cudnnLRNDescriptor_t norm_desc,
                                          cudnnLRNMode_t lrn_mode, const void* alpha,
                                          cudnnTensorDescriptor_t x_desc, const void* x,
                                          const void* beta, cudnnTensorDescriptor_t y_desc,
                                          void* y);
cudnnStatus_t cudnnLRNCrossChannelBackward(cudnnHandle_t handle, cudnnLRNDescriptor_t norm_desc,
                                           cudnnLRNMode_t lrn_mode, const void* alpha,
                                           cudnnTensorDescriptor_t y_desc, const void* y,
                                           cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           cudnnTensorDescriptor_t x_desc, const void* x,
                                           const void* beta, cudnnTensorDescriptor_t dx_desc,
                                           void* dx);
cudnnStatus_t cudnnDivisiveNormalizationForward(
    cudnnHandle_t handle, cudnnLRNDescriptor_t norm_desc, cudnnDivNormMode_t mode,
    const void* alpha, cudnnTensorDescriptor_t x_desc, const void* x, const void* means, void* temp,
    void* temp2, const void* beta, cudnnTensorDescriptor_t y_desc, void* y);
cudnnStatus_t cudnnDivisiveNormalizationBackward(
    cudnnHandle_t handle, cudnnLRNDescriptor_t norm_desc, cudnnDivNormMode_t mode,
    const void* alpha, cudnnTensorDescriptor_t x_desc, const void* x, const void* means,
    const void* dy, void* temp, void* temp2, const void* beta,
    cudnnTensorDescriptor_t dxd_means_desc, void* dx, void* dmeans);
cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    cudnnTensorDescriptor_t x_desc, const void* x, cudnnTensorDescriptor_t y_desc, void* y,
    cudnnTensorDescriptor_t bn_scale_bias_mean_var_desc, const void* bn_scale, const void* bn_bias,
    double exponential_average_factor, void* result_running_mean, void* result_running_variance,
    double epsilon, void* result_save_mean, void* result_save_inv_variance);
cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bn_ops, const void* alpha,
    const void* beta, cudnnTensorDescriptor_t x_desc, const void* x_data,
    cudnnTensorDescriptor_t z_desc, const void* z_data, cudnnTensorDescriptor_t y_desc,
    void* y_data, cudnnTensorDescriptor_t bn_scale_bias_mean_var_desc, const void* bn_scale,
    const void* bn_bias, double exponential_average_factor, void* result_running_mean,
    void* result_running_variance, double epsilon, void* result_save_mean,
    void* result_save_inv_variance, cudnnActivationDescriptor_t activation_desc, void* workspace,
    size_t workspace_bytes, void* reserve_space, size_t reserve_space_bytes);
cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha_data_diff,
    const void* beta_data_diff, const void* alpha_param_diff, const void* beta_param_diff,
    cudnnTensorDescriptor_t x_desc, const void* x, cudnnTensorDescriptor_t dy_desc, const void* dy,
    cudnnTensorDescriptor_t dx_desc, void* dx, cudnnTensorDescriptor_t d_bn_scale_bias_desc,
    const void* bn_scale, void* d_bn_scale_result, void* d_bn_bias_result, double epsilon,
    const void* saved_mean, const void* saved_inv_variance);
cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bn_ops,
    const void* alpha_data_diff, const void* beta_data_diff, const void* alpha_param_diff,
    const void* beta_param_diff, cudnnTensorDescriptor_t x_desc, const void* x_data,
    cudnnTensorDescriptor_t y_desc, const void* y_data, cudnnTensorDescriptor_t dy_desc,
    const void* dy_data, cudnnTensorDescriptor_t dz_desc, void* dz_data,
    cudnnTensorDescriptor_t dx_desc, void* dx_data, cudnnTensorDescriptor_t d_bn_scale_bias_desc,
    const void* bn_scale_data, const void* bn_bias_data, void* d_bn_scale_data,
    void* d_bn_bias_data, double epsilon, const void* saved_mean, const void* saved_inv_variance,
    cudnnActivationDescriptor_t activation_desc, void* workspace, size_t workspace_bytes,
    void* reserve_space, size_t reserve_space_bytes);
cudnnStatus_t cudnnNormalizationForwardInference(
    cudnnHandle_t handle, cudnnNormMode_t mode, cudnnNormOps_t norm_ops, cudnnNormAlgo_t algo,
    const void* alpha, const void* beta, cudnnTensorDescriptor_t x_desc, const void* x,
    cudnnTensorDescriptor_t norm_scale_bias_desc, const void* norm_scale, const void* norm_bias,
    cudnnTensorDescriptor_t norm_mean_var_desc, const void* estimated_mean,
    const void* estimated_variance, cudnnTensorDescriptor_t z_desc, const void* z,
    cudnnActivationDescriptor_t activation_desc, cudnnTensorDescriptor_t y_desc, void* y,
    double epsilon, int group_cnt);
cudnnStatus_t cudnnNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnNormMode_t mode, cudnnNormOps_t norm_ops, cudnnNormAlgo_t algo,
    const void* alpha, const void* beta, cudnnTensorDescriptor_t x_desc, const void* x_data,
    cudnnTensorDescriptor_t norm_scale_bias_desc, const void* norm_scale, const void* norm_bias,
    double exponential_average_factor, cudnnTensorDescriptor_t norm_mean_var_desc,
    void* result_running_mean, void* result_running_variance, double epsilon,
    void* result_save_mean, void* result_save_inv_variance,
    cudnnActivationDescriptor_t activation_desc, cudnnTensorDescriptor_t z_desc, const void* z_data,
    cudnnTensorDescriptor_t y_desc, void* y_data, void* workspace, size_t workspace_bytes,
    void* reserve_space, size_t reserve_space_bytes, int group_cnt);
cudnnStatus_t cudnnNormalizationBackward(
    cudnnHandle_t handle, cudnnNormMode_t mode, cudnnNormOps_t norm_ops, cudnnNormAlgo_t algo,
    const void* alpha_data_diff, const void* beta_data_diff, const void* alpha_param_diff,
    const void* beta_param_diff, cudnnTensorDescriptor_t x_desc, const void* x_data,
    cudnnTensorDescriptor_t y_desc, const void* y_data, cudnnTensorDescriptor_t dy_desc,
    const void* dy_data, cudnnTensorDescriptor_t dz_desc, void* dz_data,
    cudnnTensorDescriptor_t dx_desc, void* dx_data, cudnnTensorDescriptor_t d_norm_scale_bias_desc,
    const void* norm_scale_data, const void* norm_bias_data, void* d_norm_scale_data,
    void* d_norm_bias_data, double epsilon, cudnnTensorDescriptor_t norm_mean_var_desc,
    const void* saved_mean, const void* saved_inv_variance,
    cudnnActivationDescriptor_t activation_desc, void* workspace, size_t workspace_bytes,
    void* reserve_space, size_t reserve_space_bytes, int group_cnt);
cudnnStatus_t cudnnSpatialTfGridGeneratorForward(cudnnHandle_t handle,
                                                 cudnnSpatialTransformerDescriptor_t st_desc,
                                                 const void* theta, void* grid);
cudnnStatus_t cudnnSpatialTfGridGeneratorBackward(cudnnHandle_t handle,
                                                  cudnnSpatialTransformerDescriptor_t st_desc,
                                                  const void* dgrid, void* dtheta);
cudnnStatus_t cudnnSpatialTfSamplerForward(cudnnHandle_t handle,
                                           cudnnSpatialTransformerDescriptor_t st_desc,
                                           const void* alpha, cudnnTensorDescriptor_t x_desc,
                                           const void* x, const void* grid, const void* beta,
                                           cudnnTensorDescriptor_t y_desc, void* y);
cudnnStatus_t cudnnSpatialTfSamplerBackward(cudnnHandle_t handle,
                                            cudnnSpatialTransformerDescriptor_t st_desc,
                                            const void* alpha, cudnnTensorDescriptor_t x_desc,
                                            const void* x, const void* beta,
                                            cudnnTensorDescriptor_t dx_desc, void* dx,
                                            const void* alpha_dgrid,
                                            cudnnTensorDescriptor_t dy_desc, const void* dy,
                                            const void* grid, const void* beta_dgrid, void* dgrid);
cudnnStatus_t cudnnDropoutForward(cudnnHandle_t handle, cudnnDropoutDescriptor_t dropout_desc,
                                  cudnnTensorDescriptor_t x_desc, const void* x,
                                  cudnnTensorDescriptor_t y_desc, void* y, void* reserve_space,
                                  size_t reserve_space_bytes);
cudnnStatus_t cudnnDropoutBackward(cudnnHandle_t handle, cudnnDropoutDescriptor_t dropout_desc,
                                   cudnnTensorDescriptor_t dy_desc, const void* dy,
                                   cudnnTensorDescriptor_t dx_desc, void* dx, void* reserve_space,
                                   size_t reserve_space_bytes);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(readability-identifier-naming) */
