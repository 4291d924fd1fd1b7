add_library(dtrun_rank_support STATIC support/rank_processes.cc support/rank_threads.cc)
target_link_libraries(dtrun_rank_support
  PUBLIC dtrun_test_support dtrun::collectives PRIVATE GTest::gtest dtrun_flags)
# Every operation against a reference, for the backends' tests.
add_library(dtrun_conformance STATIC support/conformance_messages.cc support/conformance_rank.cc
  support/conformance_suite.cc support/conformance_values.cc)
target_link_libraries(dtrun_conformance
  PUBLIC dtrun_rank_support PRIVATE GTest::gtest dtrun_flags)
if(NOT DTRUN_SANITIZE STREQUAL "")
  target_compile_definitions(dtrun_conformance PRIVATE DTRUN_CONFORMANCE_SMALL)
endif()

dtrun_test(collectives/backend_spec_test.cc LINKS dtrun_rank_support)
dtrun_test(collectives/fingerprint_test.cc LINKS dtrun::collectives)
dtrun_test(collectives/schedule_test.cc LINKS dtrun::collectives)
dtrun_test(collectives/process_group_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/direct_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/disagreement_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/failure_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/cpu_parts_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/membership_test.cc LINKS dtrun_rank_support)
dtrun_test(collectives/vectors_test.cc LINKS dtrun_rank_support dtrun_test_vectors PROCESSORS 2)
dtrun_test(collectives/group_calls_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/monitored_barrier_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/subgroup_test.cc LINKS dtrun_rank_support PROCESSORS 2)
target_include_directories(collectives_subgroup_test PRIVATE ${PROJECT_SOURCE_DIR}/collectives/src)
dtrun_test(collectives/conformance_test.cc LINKS dtrun_conformance PROCESSORS 2)
dtrun_test(collectives/nccl_test.cc LINKS dtrun_rank_support)
add_library(dtrun_nccl_simulation STATIC collectives/nccl_simulation.cc)
target_include_directories(dtrun_nccl_simulation PUBLIC ${PROJECT_SOURCE_DIR}/collectives/src)
target_link_libraries(dtrun_nccl_simulation PUBLIC dtrun_rank_support dtrun::collectives PRIVATE dtrun_flags)
dtrun_test(collectives/nccl_state_test.cc LINKS dtrun_nccl_simulation PROCESSORS 2)
dtrun_test(collectives/nccl_conformance_test.cc LINKS dtrun_nccl_simulation dtrun_conformance PROCESSORS 2)
dtrun_test(collectives/staged_test.cc LINKS dtrun_nccl_simulation PROCESSORS 2)
dtrun_test(collectives/nccl_failure_test.cc LINKS dtrun_nccl_simulation PROCESSORS 2)
dtrun_test(collectives/nccl_gpu_test.cc LINKS dtrun_conformance PROCESSORS 2)
add_executable(gpu_program collectives/workers/gpu_program.cc)
target_link_libraries(gpu_program PRIVATE dtrun::dtrun dtrun_flags)
# What scripts/gpu-check takes to a machine with a GPU.
add_custom_target(gpu_check_programs)
add_dependencies(gpu_check_programs
  tensor_cuda_test collectives_nccl_gpu_test collectives_nccl_test gpu_program dtrun_launcher)
if(DTRUN_HAVE_CUDA)
  dtrun_test(collectives/gpu_check_test.cc)
  target_compile_definitions(collectives_gpu_check_test PRIVATE
    DTRUN_SOURCE="${PROJECT_SOURCE_DIR}" DTRUN_BUILD="${PROJECT_BINARY_DIR}")
  add_dependencies(collectives_gpu_check_test gpu_check_programs)
endif()

if(DTRUN_HAVE_GLOO)
  dtrun_test(collectives/gloo_test.cc LINKS dtrun_rank_support PROCESSORS 2)
  dtrun_test(collectives/gloo_conformance_test.cc LINKS dtrun_conformance PROCESSORS 2)
endif()
# What stands in where a library was not found is tested also where it was.
dtrun_test(collectives/absent_backends_test.cc LINKS dtrun::collectives)
target_sources(collectives_absent_backends_test PRIVATE
  ${PROJECT_SOURCE_DIR}/collectives/src/no_gloo/no_gloo.cc ${PROJECT_SOURCE_DIR}/collectives/src/no_mpi/no_mpi.cc)
