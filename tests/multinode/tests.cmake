# A cluster of real Slurm nodes on this machine, for tests that run the documents' lines.
add_library(dtrun_slurm_lab STATIC support/slurm_lab.cc)
target_link_libraries(dtrun_slurm_lab PUBLIC dtrun_test_support PRIVATE dtrun_flags)
target_compile_definitions(dtrun_slurm_lab PUBLIC
  DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(dtrun_slurm_lab dtrun_launcher)

# dtrun_lab_test(<layer>/<file>_test.cc <NameInCTest> [LINKS <targets...>] [LABEL <label>])
# As dtrun_test(), but one CTest test: its tests share what is slow to start.
function(dtrun_lab_test source name)
  cmake_parse_arguments(test "" "LABEL" "LINKS" ${ARGN})
  string(REPLACE "/" "_" target ${source})
  string(REPLACE ".cc" "" target ${target})
  get_filename_component(layer ${source} DIRECTORY)
  if(NOT test_LABEL)
    set(test_LABEL ${layer})
  endif()
  add_executable(${target} ${source})
  target_link_libraries(${target} PRIVATE dtrun_slurm_lab ${test_LINKS} GTest::gtest_main dtrun_flags)
  if(NOT TARGET tests_${layer})
    add_custom_target(tests_${layer})
  endif()
  add_dependencies(tests_${layer} ${target})
  add_test(NAME ${name} COMMAND ${target})
  # Why the cluster cannot start here, where it cannot: then all tests of the program are skipped.
  set_tests_properties(${name} PROPERTIES LABELS ${test_LABEL} TIMEOUT 120 PROCESSORS 2
    SKIP_REGULAR_EXPRESSION "no Slurm cluster here")
endfunction()

add_executable(transports multinode/workers/transports.cc)
target_link_libraries(transports PRIVATE dtrun::dtrun dtrun_flags)
dtrun_test(multinode/two_hosts_test.cc LINKS GTest::gmock PROCESSORS 2)
target_compile_definitions(multinode_two_hosts_test PRIVATE
  DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(multinode_two_hosts_test transports misbehave dtrun_launcher)
dtrun_lab_test(multinode/elastic_hosts_test.cc ElasticHostsTest LINKS dtrun::base GTest::gmock)
dtrun_lab_test(multinode/slurm_test.cc SlurmTest LINKS GTest::gmock)
add_dependencies(multinode_slurm_test transports misbehave examples)
add_executable(store_client multinode/workers/store_client.cc)
target_link_libraries(store_client PRIVATE dtrun::rendezvous dtrun_flags)
dtrun_test(multinode/store_host_test.cc LINKS GTest::gmock PROCESSORS 2)
target_compile_definitions(multinode_store_host_test PRIVATE STORE_CLIENT="$<TARGET_FILE:store_client>"
  DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(multinode_store_host_test store_client dtrun_store)
