add_executable(transports multinode/workers/transports.cc)
target_link_libraries(transports PRIVATE dtrun::dtrun dtrun_flags)
dtrun_test(multinode/two_hosts_test.cc LINKS GTest::gmock PROCESSORS 2)
target_compile_definitions(multinode_two_hosts_test PRIVATE
  DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(multinode_two_hosts_test transports misbehave dtrun_launcher)
