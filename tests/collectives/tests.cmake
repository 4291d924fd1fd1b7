add_library(dtrun_rank_support STATIC support/rank_processes.cc support/rank_threads.cc)
target_link_libraries(dtrun_rank_support
  PUBLIC dtrun_test_support dtrun::collectives PRIVATE GTest::gtest dtrun_flags)
if(TARGET dtrun_gloo)
  add_dependencies(dtrun_rank_support dtrun_gloo)
endif()
# Every operation against a reference, for the backends' tests.
add_library(dtrun_conformance STATIC support/conformance_messages.cc support/conformance_rank.cc
  support/conformance_suite.cc support/conformance_values.cc)
target_link_libraries(dtrun_conformance
  PUBLIC dtrun_rank_support PRIVATE GTest::gtest dtrun_flags)
if(NOT DTRUN_SANITIZE STREQUAL "")
  target_compile_definitions(dtrun_conformance PRIVATE DTRUN_CONFORMANCE_SMALL)
endif()

# What NCCL does, in this process.
add_library(dtrun_nccl_simulation STATIC collectives/nccl_simulation.cc collectives/simulated_clique.cc
  collectives/simulated_device.cc collectives/simulated_nccl.cc collectives/simulation_state.cc)
target_include_directories(dtrun_nccl_simulation PUBLIC ${PROJECT_SOURCE_DIR}/collectives/src)
target_link_libraries(dtrun_nccl_simulation PUBLIC dtrun_rank_support dtrun::collectives PRIVATE dtrun_flags)

dtrun_test(collectives/tests LINKS dtrun_rank_support SOURCES algorithm backend_spec copy_pace cost_table deliveries doorbell fingerprint large_copy membership payload_ring progress_thread schedule)
set(gloo_tests)
set(gloo_files)
if(DTRUN_HAVE_GLOO)
  set(gloo_tests gloo gloo_conformance)
  set(gloo_files ${PROJECT_SOURCE_DIR}/collectives/src/gloo/held_pipe_signal.cc)
endif()
# Ranks are threads. The promise is a thousand ranks killed inside collectives: the long form keeps it, every run shows a part.
set(kills 44)
if(NOT DTRUN_SANITIZE STREQUAL "")
  set(kills 11)
endif()
dtrun_test(collectives/rank_tests LINKS dtrun_conformance dtrun_nccl_simulation dtrun_test_vectors PROCESSORS 2
  SOURCES abort call_counters commons_door conformance cpu_parts cpu_share crowd direct disagreement failure group_calls group_table kills lanes lifelines many_ranks monitored_barrier nccl_batch nccl_blocking nccl_conformance nccl_failure nccl_group nccl_record
    nccl_state overlap own_cpu parcels planned_bytes process_group register_backend ring run_ahead shared_tensors short_messages shrink single_copy staged striped_channel subgroup tcp_channel vectors work ${gloo_tests} WITH ${gloo_files}
  DEFINITIONS DTRUN_COLLECTIVE_KILLS=${kills} DTRUN_COLLECTIVE_KILL_SEED=1)
if(DTRUN_LONG_TESTS AND DTRUN_SANITIZE STREQUAL "")
  dtrun_test(collectives/long_tests LINKS dtrun_rank_support PROCESSORS 2 LABEL long TIMEOUT 1200 COMPUTES SOURCES huge kills
    DEFINITIONS DTRUN_COLLECTIVE_KILLS=1000 DTRUN_COLLECTIVE_KILL_SEED=2)
endif()
# Programs that scripts/gpu-check takes to a machine with a GPU.
dtrun_test(collectives/nccl_test LINKS dtrun_rank_support SOURCES nccl)
dtrun_test(collectives/nccl_gpu_test LINKS dtrun_conformance PROCESSORS 2 SOURCES nccl_gpu)
add_executable(gpu_program collectives/workers/gpu_program.cc)
target_link_libraries(gpu_program PRIVATE dtrun::dtrun dtrun_flags)
# What scripts/gpu-check takes to a machine with a GPU.
add_custom_target(gpu_check_programs)
add_dependencies(gpu_check_programs
  tensor_cuda_test collectives_nccl_gpu_test collectives_nccl_test gpu_program dtensor_demo dtrun_launcher)
if(DTRUN_HAVE_CUDA)
  dtrun_test(collectives/gpu_check_tests SOURCES gpu_check DEPENDS gpu_check_programs
    DEFINITIONS DTRUN_SOURCE="${PROJECT_SOURCE_DIR}" DTRUN_BUILD="${PROJECT_BINARY_DIR}")
endif()

if(DTRUN_HAVE_MPI)
  # In release only: Open MPI keeps memory of its own, and its threads are not the sanitizers' affair.
  if(DTRUN_SANITIZE STREQUAL "")
    add_executable(mpi_rank collectives/workers/mpi_rank.cc)
    target_link_libraries(mpi_rank PRIVATE dtrun::dtrun dtrun_conformance GTest::gtest dtrun_flags)
    add_executable(mpi_tutorial collectives/workers/mpi_tutorial.cc)
    target_link_libraries(mpi_tutorial PRIVATE dtrun::dtrun dtrun_flags)
    dtrun_test(collectives/mpi_tests LINKS dtrun::collectives PROCESSORS 2 SOURCES mpi
      DEFINITIONS DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DEPENDS mpi_rank mpi_tutorial)
    target_include_directories(mpi_rank PRIVATE ${PROJECT_SOURCE_DIR}/collectives/src)
    foreach(target mpi_rank collectives_mpi_tests)
      target_include_directories(${target} SYSTEM PRIVATE ${OPEN_MPI_INCLUDE_DIR})
      target_compile_definitions(${target} PRIVATE OMPI_SKIP_MPICXX)
    endforeach()
  endif()
else()
  message(STATUS "dtrun: no Open MPI (libopenmpi-dev): the tests of backend mpi are skipped")
endif()
# What stands in where a library was not found is tested also where it was.
dtrun_test(collectives/absent_tests LINKS dtrun::collectives SOURCES absent_backends)
target_sources(collectives_absent_tests PRIVATE
  ${PROJECT_SOURCE_DIR}/collectives/src/no_gloo/no_gloo.cc ${PROJECT_SOURCE_DIR}/collectives/src/no_mpi/no_mpi.cc)
