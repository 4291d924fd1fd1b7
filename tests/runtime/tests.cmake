add_executable(misbehave runtime/workers/misbehave.cc)
target_link_libraries(misbehave PRIVATE dtrun::dtrun dtrun_flags)

foreach(name job start)
  dtrun_test(runtime/${name}_test.cc LINKS dtrun::base GTest::gmock PROCESSORS 2)
  target_compile_definitions(runtime_${name}_test PRIVATE DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_dependencies(runtime_${name}_test misbehave hello dtrun_launcher)
endforeach()
# The promise is a thousand kills of a thousand; the long form keeps it, every run of the suite shows a part.
target_link_libraries(runtime_job_test PRIVATE dtrun_launcher_test_support)
target_compile_definitions(runtime_job_test PRIVATE DTRUN_RANK_KILLS=30 DTRUN_LAUNCHER_KILLS=5)
add_executable(runtime_job_long_test runtime/job_test.cc)
target_link_libraries(runtime_job_long_test PRIVATE dtrun_launcher_test_support dtrun::base GTest::gmock GTest::gtest_main dtrun_flags)
target_compile_definitions(runtime_job_long_test PRIVATE
  DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_RANK_KILLS=1000 DTRUN_LAUNCHER_KILLS=100)
add_dependencies(runtime_job_long_test misbehave dtrun_launcher)
gtest_discover_tests(runtime_job_long_test TEST_PREFIX Long. TEST_FILTER JobKillTest.* DISCOVERY_MODE PRE_TEST
  PROPERTIES LABELS long TIMEOUT 600 PROCESSORS 2)
