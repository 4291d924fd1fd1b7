# A cluster of real Slurm nodes on this machine, for tests that run the documents' lines.
add_library(dtrun_slurm_lab STATIC support/slurm_lab.cc)
target_link_libraries(dtrun_slurm_lab PUBLIC dtrun_test_support PRIVATE dtrun_flags)
target_compile_definitions(dtrun_slurm_lab PUBLIC
  DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(dtrun_slurm_lab dtrun_launcher)

# dtrun_suite_test(<program> <suite> [LABEL <label>] [TIMEOUT s])
# One CTest test of one suite, whose tests share a cluster, which is slow to start. Why that cannot start here, where it cannot,
# is printed: then all tests of the suite are skipped.
function(dtrun_suite_test program suite)
  cmake_parse_arguments(test "" "LABEL;TIMEOUT" "" ${ARGN})
  string(REGEX REPLACE "_.*" "" layer ${program})
  set(name ${suite})
  if(test_LABEL STREQUAL long)
    set(name Long.${suite})
  elseif(NOT test_LABEL)
    set(test_LABEL ${layer})
  endif()
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${program} --gtest_filter=*${suite}*)
  set_tests_properties(${name} PROPERTIES LABELS ${test_LABEL} TIMEOUT ${test_TIMEOUT} PROCESSORS 2 COST 15
    SKIP_REGULAR_EXPRESSION "no Slurm cluster here" FAIL_REGULAR_EXPRESSION "Running 0 tests")
endfunction()

add_executable(transports multinode/workers/transports.cc)
target_link_libraries(transports PRIVATE dtrun::dtrun dtrun_flags)
add_executable(layouts multinode/workers/layouts.cc)
target_link_libraries(layouts PRIVATE dtrun::dtrun dtrun_flags)
add_executable(conforming_rank multinode/workers/conforming_rank.cc)
target_link_libraries(conforming_rank PRIVATE dtrun::dtrun dtrun_conformance GTest::gtest dtrun_flags)
add_executable(await_ends multinode/workers/await_ends.cc)
target_link_libraries(await_ends PRIVATE dtrun::base dtrun_flags)
add_executable(store_client multinode/workers/store_client.cc)
target_link_libraries(store_client PRIVATE dtrun::rendezvous dtrun_flags)

dtrun_test(multinode/tests LINKS dtrun_launcher_test_support GTest::gmock PROCESSORS 2 TIMEOUT 300 SOURCES ssh_hosts store_host two_hosts two_hosts_links
  DEFINITIONS DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    STORE_CLIENT="$<TARGET_FILE:store_client>"
  DEPENDS transports layouts conforming_rank dtensor_demo train_gpt misbehave flight_worker dtrun_launcher dtrun_doctor store_client dtrun_store)
set(long_sources)
if(DTRUN_LONG_TESTS)
  set(long_sources slurm_faults slurm_time_limit)
endif()
dtrun_test(multinode/lab_tests LINKS dtrun_slurm_lab dtrun::base GTest::gmock ONE_CTEST_TEST
  SOURCES elastic_hosts slurm slurm_batch slurm_engine ${long_sources}
  DEPENDS transports layouts misbehave examples await_ends)
foreach(suite ElasticHostsTest SlurmTest SlurmEngineTest)
  dtrun_suite_test(multinode_lab_tests ${suite})
endforeach()
dtrun_suite_test(multinode_lab_tests SlurmBatchTest TIMEOUT 300)
if(DTRUN_LONG_TESTS)
  dtrun_suite_test(multinode_lab_tests SlurmFaultsTest LABEL long TIMEOUT 300)
  dtrun_suite_test(multinode_lab_tests SlurmTimeLimitTest LABEL long TIMEOUT 300)
endif()
