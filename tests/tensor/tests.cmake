# PyTorch's results lie compressed in the tree and are unpacked beside the tests' programs.
set(golden_folder ${CMAKE_CURRENT_BINARY_DIR}/tensor_goldens)
set(golden_files)
foreach(name tensor_prints tensor_ops tensor_operators tensor_convolutions tensor_short_integers tensor_no_dims tensor_samples tensor_edges)
  set(packed ${CMAKE_CURRENT_SOURCE_DIR}/vectors/${name}.jsonl.gz)
  set(unpacked ${golden_folder}/${name}.jsonl)
  add_custom_command(OUTPUT ${unpacked}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${golden_folder}
    COMMAND gzip -dc ${packed} > ${unpacked}
    DEPENDS ${packed} VERBATIM)
  list(APPEND golden_files ${unpacked})
endforeach()
add_library(dtrun_tensor_goldens STATIC
  tensor/golden_file.cc tensor/golden_operations.cc ${golden_files})
target_compile_definitions(dtrun_tensor_goldens PRIVATE DTRUN_GOLDEN_FOLDER="${golden_folder}")
target_link_libraries(dtrun_tensor_goldens
  PUBLIC dtrun_test_support dtrun::tensor PRIVATE GTest::gtest dtrun_flags)

# A CUDA device whose memory is the host's, and what every device must do.
add_library(dtrun_simulated_cuda STATIC
  tensor/device_attention.cc tensor/device_comparison.cc tensor/device_creation.cc tensor/device_families.cc tensor/device_map.cc tensor/device_optimizer.cc
  tensor/device_rows.cc tensor/device_suite.cc tensor/simulated_cuda.cc
  tensor/simulated_devices.cc)
target_include_directories(dtrun_simulated_cuda PRIVATE ${PROJECT_SOURCE_DIR}/tensor/src)
target_link_libraries(dtrun_simulated_cuda
  PUBLIC dtrun_test_support dtrun::tensor PRIVATE GTest::gtest dtrun_flags)

dtrun_test(tensor/tests LINKS dtrun_simulated_cuda dtrun_tensor_goldens
  SOURCES attention half dtype shape view copy literal reduce_kernel ops random caching_allocator cuda_stream device_families device_map device_operations dlpack npy safetensors printing signals golden_ops map_loop operator_golden optimizer pointwise reduction row_formulas rows strided strided_layout thread_pool host_memory vector_registers)
target_include_directories(tensor_tests SYSTEM PRIVATE ${OPENBLAS_INCLUDE_DIR})
# The kernels that ask which vector registers they may use, once more with fewer: so one machine tests the narrower variants,
# too; but not what the loader chooses (multiversion.h).
foreach(capability default avx2)
  add_test(NAME tensor_tests.with_${capability}
    COMMAND tensor_tests "--gtest_filter=AttentionTest.*:GoldenOpsTest.*:OperatorGoldenTest.*:OpsTest.*:PhiloxTest.*:PointwiseTest.*:RandomTest.*:RowFormulasTest.*:RowsTest.*:SumTest.*")
  set_tests_properties(tensor_tests.with_${capability} PROPERTIES LABELS tensor TIMEOUT 300 PROCESSORS 2
    ENVIRONMENT DTRUN_CPU_CAPABILITY=${capability} SKIP_REGULAR_EXPRESSION "but this processor has no ${capability}")
endforeach()
# Also a program that scripts/gpu-check takes to a machine with a GPU.
dtrun_test(tensor/cuda_test LINKS dtrun_simulated_cuda dtrun_tensor_goldens SOURCES cuda)
if(DTRUN_LONG_TESTS)
  dtrun_test(tensor/long_tests LINKS dtrun::tensor LABEL long TIMEOUT 600 SOURCES large)
endif()
