add_executable(misbehave runtime/workers/misbehave.cc)
target_link_libraries(misbehave PRIVATE dtrun::dtrun dtrun_flags)

foreach(worker leaving meet)
  add_executable(${worker} runtime/workers/${worker}.cc)
  target_link_libraries(${worker} PRIVATE dtrun::dtrun dtrun_flags)
endforeach()

foreach(name exit_warning job start)
  dtrun_test(runtime/${name}_test.cc LINKS dtrun::base GTest::gmock PROCESSORS 2)
  target_compile_definitions(runtime_${name}_test PRIVATE DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_dependencies(runtime_${name}_test misbehave leaving meet hello dtrun_launcher)
endforeach()
dtrun_test(runtime/mp_test.cc LINKS dtrun::dtrun GTest::gmock PROCESSORS 2)
if(DTRUN_SANITIZE STREQUAL "")
  # It runs the compiler and nothing of ours.
  dtrun_test(runtime/mp_compile_error_test.cc LINKS GTest::gmock)
  target_compile_definitions(runtime_mp_compile_error_test PRIVATE
    DTRUN_CXX="${CMAKE_CXX_COMPILER}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
dtrun_test(runtime/mp_decision_test.cc LINKS dtrun::dtrun GTest::gmock)
add_executable(mp_parent runtime/workers/mp_parent.cc)
target_link_libraries(mp_parent PRIVATE dtrun::dtrun dtrun_flags)
dtrun_test(runtime/mp_job_test.cc LINKS dtrun_launcher_test_support dtrun::base fmt::fmt GTest::gmock PROCESSORS 2)
target_compile_definitions(runtime_mp_job_test PRIVATE DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
add_dependencies(runtime_mp_job_test mp_parent dtrun_launcher)
# The promise is a thousand kills of a thousand; the long form keeps it, every run of the suite shows a part.
target_link_libraries(runtime_job_test PRIVATE dtrun_launcher_test_support)
target_compile_definitions(runtime_job_test PRIVATE DTRUN_RANK_KILLS=30 DTRUN_LAUNCHER_KILLS=5)
add_executable(runtime_job_long_test runtime/job_test.cc)
target_link_libraries(runtime_job_long_test PRIVATE dtrun_launcher_test_support dtrun::base GTest::gmock dtrun_test_main)
target_compile_definitions(runtime_job_long_test PRIVATE
  DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_RANK_KILLS=1000 DTRUN_LAUNCHER_KILLS=100)
add_dependencies(runtime_job_long_test misbehave dtrun_launcher)
gtest_discover_tests(runtime_job_long_test TEST_PREFIX Long. TEST_FILTER JobKillTest.* DISCOVERY_MODE PRE_TEST
  PROPERTIES LABELS long TIMEOUT 600 PROCESSORS 2)

add_library(dtrun_runtime_test_support STATIC runtime/dist_ranks.cc)
target_include_directories(dtrun_runtime_test_support PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(dtrun_runtime_test_support PUBLIC dtrun::dtrun GTest::gmock PRIVATE dtrun_flags)
dtrun_test(runtime/dist_test.cc LINKS dtrun_runtime_test_support PROCESSORS 2)
foreach(name init_method print rank_device)
  dtrun_test(runtime/${name}_test.cc LINKS dtrun::dtrun GTest::gmock)
endforeach()
