# The fat binary of the CUDA kernels. Each architecture has its own commands, so the build compiles
# them in parallel: nvcc makes PTX, then machine code from it, and `fatbinary` packs the results.

# Sets `out` to the architectures, of those in `known`, of the GPUs of this machine.
function(oocdnn_native_architectures out known)
  set(${out} "" PARENT_SCOPE)
  find_program(OOCDNN_NVIDIA_SMI nvidia-smi)
  if(NOT OOCDNN_NVIDIA_SMI)
    return()
  endif()
  execute_process(COMMAND ${OOCDNN_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities RESULT_VARIABLE failed ERROR_QUIET TIMEOUT 60)
  if(NOT failed EQUAL 0)
    return()
  endif()
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" found "${capabilities}")
  list(TRANSFORM found REPLACE "\\." "")
  list(REMOVE_DUPLICATES found)
  set(built "")
  foreach(target IN LISTS found)
    if(target IN_LIST known)
      list(APPEND built ${target})
    else()
      message(STATUS "oocdnn: this nvcc does not know sm_${target}; NVRTC will compile the kernels")
    endif()
  endforeach()
  set(${out} "${built}" PARENT_SCOPE)
endfunction()

# Sets `out` to the architectures that OOCDNN_CUDA_ARCHITECTURES asks of an nvcc that knows `known`.
function(oocdnn_chosen_architectures out known)
  string(REPLACE "," ";" chosen "${OOCDNN_CUDA_ARCHITECTURES}")
  if(chosen STREQUAL "native")
    oocdnn_native_architectures(chosen "${known}")
  elseif(chosen STREQUAL "all")
    # One for each generation; PTX of the oldest serves the others.
    set(chosen "")
    foreach(target 75 80 86 89 90 100 120)
      if(target IN_LIST known)
        list(APPEND chosen ${target})
      endif()
    endforeach()
  endif()
  foreach(target IN LISTS chosen)
    if(NOT target IN_LIST known)
      list(JOIN known ", " numbers)
      message(FATAL_ERROR "oocdnn: OOCDNN_CUDA_ARCHITECTURES=${OOCDNN_CUDA_ARCHITECTURES}: "
        "${OOCDNN_NVCC} does not know ${target}; pass native, all, off, or some of ${numbers}, "
        "with commas between")
    endif()
  endforeach()
  list(SORT chosen COMPARE NATURAL)
  set(${out} "${chosen}" PARENT_SCOPE)
endfunction()

# Sets `out` to the folder of the toolkit's programs, which a wrapper of nvcc does not lie in.
function(oocdnn_toolkit_programs out)
  execute_process(COMMAND ${OOCDNN_NVCC} --dryrun -E "${cuda_dir}/kernels.cu"
    OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(folder "")
  if(text MATCHES "_HERE_=([^\n]+)")
    set(folder "${CMAKE_MATCH_1}")
  endif()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# Sets `file` to the fat binary, empty if there is none, and `names` to "sm_80 sm_90 ...". Nothing is
# fused, so that sums have the bits of the CPU device's.
function(oocdnn_add_fatbin file names)
  set(${file} "" PARENT_SCOPE)
  set(${names} "" PARENT_SCOPE)
  string(TOLOWER "${OOCDNN_CUDA_ARCHITECTURES}" OOCDNN_CUDA_ARCHITECTURES)
  if(OOCDNN_CUDA_ARCHITECTURES STREQUAL "off")
    message(STATUS "oocdnn: NVRTC will compile the CUDA kernels where they are used")
    return()
  endif()
  find_program(OOCDNN_NVCC nvcc
    HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT OOCDNN_NVCC)
    message(STATUS "oocdnn: no nvcc; NVRTC will compile the CUDA kernels where they are used")
    return()
  endif()
  execute_process(COMMAND ${OOCDNN_NVCC} --list-gpu-code OUTPUT_VARIABLE listed)
  string(REGEX MATCHALL "sm_[0-9]+\n" known "${listed}")
  list(TRANSFORM known REPLACE "sm_|\n" "")
  oocdnn_chosen_architectures(targets "${known}")
  if(NOT targets)
    message(STATUS "oocdnn: no GPU for OOCDNN_CUDA_ARCHITECTURES=${OOCDNN_CUDA_ARCHITECTURES}; "
      "NVRTC will compile the CUDA kernels where they are used")
    return()
  endif()
  message(STATUS "oocdnn: ${OOCDNN_NVCC} compiles the CUDA kernels for ${targets}")
  oocdnn_toolkit_programs(toolkit)
  find_program(OOCDNN_FATBINARY fatbinary HINTS "${toolkit}" REQUIRED)

  # 9.0 has instructions that no other GPU has; its code uses them where nvcc knows them.
  execute_process(COMMAND ${OOCDNN_NVCC} --version OUTPUT_VARIABLE version)
  if(version MATCHES "release ([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 12)
    set(code_of_90 90a)
  endif()
  set(compile ${OOCDNN_NVCC} -std=c++17 -fmad=false)
  set(images "")
  set(parts "")
  foreach(target IN LISTS targets)
    set(code ${target})
    if(DEFINED code_of_${target})
      set(code ${code_of_${target}})
    endif()
    set(ptx "${PROJECT_BINARY_DIR}/kernels.sm_${target}.ptx")
    set(cubin "${PROJECT_BINARY_DIR}/kernels.sm_${target}.cubin")
    add_custom_command(OUTPUT "${ptx}"
      COMMAND ${compile} -arch=compute_${code} -ptx
        -I "${CMAKE_CURRENT_SOURCE_DIR}" "${cuda_dir}/kernels.cu" -o "${ptx}"
      DEPENDS ${kernel_sources} COMMENT "Compiling the CUDA kernels for sm_${target}" VERBATIM)
    add_custom_command(OUTPUT "${cubin}"
      COMMAND ${compile} -arch=sm_${code} -cubin "${ptx}" -o "${cubin}"
      DEPENDS "${ptx}" COMMENT "Assembling the CUDA kernels for sm_${target}" VERBATIM)
    # The PTX of the oldest without instructions of its own serves GPUs that are not listed.
    if(code STREQUAL target AND NOT images MATCHES "kind=ptx")
      list(APPEND images "--image3=kind=ptx,sm=${target},file=${ptx}")
      list(APPEND parts "${ptx}")
    endif()
    list(APPEND images "--image3=kind=elf,sm=${code},file=${cubin}")
    list(APPEND parts "${cubin}")
  endforeach()
  if(NOT images MATCHES "kind=ptx")
    message(STATUS "oocdnn: NVRTC will compile the CUDA kernels for other GPUs than sm_90")
  endif()
  list(TRANSFORM targets PREPEND sm_ OUTPUT_VARIABLE target_names)
  list(JOIN target_names " " target_names)
  set(fatbin "${PROJECT_BINARY_DIR}/kernels.fatbin")
  add_custom_command(OUTPUT "${fatbin}"
    COMMAND ${OOCDNN_FATBINARY} -64 --create=${fatbin}
      "--cicc-cmdline=-ftz=0 -prec_div=1 -prec_sqrt=1 -fmad=0 " ${images}
    DEPENDS ${parts} COMMENT "Packing the CUDA kernels" VERBATIM)
  set(${file} "${fatbin}" PARENT_SCOPE)
  set(${names} "${target_names}" PARENT_SCOPE)
endfunction()
