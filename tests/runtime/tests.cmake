add_executable(misbehave runtime/workers/misbehave.cc)
target_link_libraries(misbehave PRIVATE dtrun::dtrun dtrun_flags)

foreach(worker leaving meet)
  add_executable(${worker} runtime/workers/${worker}.cc)
  target_link_libraries(${worker} PRIVATE dtrun::dtrun dtrun_flags)
endforeach()

# As a user compiles: without -g there would be no lines to name.
add_executable(user_lines runtime/workers/user_lines.cc)
target_compile_options(user_lines PRIVATE -g1)
target_link_libraries(user_lines PRIVATE dtrun::dtrun dtrun_flags)

# Its stack has lines, and its functions are not inlined away.
add_executable(crash runtime/workers/crash.cc)
target_compile_options(crash PRIVATE -g1 -fno-optimize-sibling-calls)
target_link_libraries(crash PRIVATE dtrun::dtrun dtrun_flags)

add_executable(mp_parent runtime/workers/mp_parent.cc)
target_link_libraries(mp_parent PRIVATE dtrun::dtrun dtrun_flags)
add_library(dtrun_runtime_test_support STATIC runtime/dist_ranks.cc)
target_include_directories(dtrun_runtime_test_support PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(dtrun_runtime_test_support PUBLIC dtrun::dtrun GTest::gmock PRIVATE dtrun_flags)

dtrun_test(runtime/tests LINKS dtrun::dtrun GTest::gmock SOURCES init_method mp_decision print rank_device)
dtrun_test(runtime/rank_tests LINKS dtrun_runtime_test_support PROCESSORS 2 SOURCES dist dist_coalesce dist_objects simulate)
dtrun_test(runtime/mp_tests LINKS dtrun::dtrun GTest::gmock PROCESSORS 2 SOURCES mp)
# The promise is a thousand kills of a thousand; the long form keeps it, every run of the suite shows a part.
set(job_links dtrun_launcher_test_support dtrun::base fmt::fmt GTest::gmock)
# Sanitizers have handlers of their own, which end a process that crashes in another way.
set(crash_tests)
if(DTRUN_SANITIZE STREQUAL "")
  set(crash_tests rank_crash)
endif()
dtrun_test(runtime/job_tests LINKS ${job_links} PROCESSORS 2 SOURCES exit_warning job mp_job ${crash_tests} start user_lines
  DEFINITIONS DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_RANK_KILLS=30 DTRUN_LAUNCHER_KILLS=5 DTRUN_HAVE_BACKTRACE=$<BOOL:${DTRUN_HAVE_BACKTRACE}>
  DEPENDS misbehave crash leaving meet mp_parent hello user_lines dtrun_launcher)
if(DTRUN_LONG_TESTS)
  dtrun_test(runtime/long_tests LINKS ${job_links} PROCESSORS 2 LABEL long TIMEOUT 600 SOURCES job
    DEFINITIONS DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_RANK_KILLS=1000 DTRUN_LAUNCHER_KILLS=100
    DEPENDS misbehave dtrun_launcher)
endif()
if(DTRUN_SANITIZE STREQUAL "")
  # It runs the compiler and nothing of ours.
  dtrun_test(runtime/compiler_tests LINKS GTest::gmock SOURCES compile_error
    DEFINITIONS DTRUN_CXX="${CMAKE_CXX_COMPILER}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
