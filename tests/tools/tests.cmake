add_executable(flight_worker tools/flight_worker.cc)
target_link_libraries(flight_worker PRIVATE dtrun::dtrun dtrun_flags)
add_executable(spoilt_bench tools/spoilt_bench.cc)
target_link_libraries(spoilt_bench PRIVATE dtrun_measuring dtrun_flags)
add_library(store_plugin MODULE tools/store_plugin.cc)
target_link_libraries(store_plugin PRIVATE dtrun_test_support dtrun::dtrun fmt::fmt dtrun_flags)
# The sanitizers have a clock_gettime of their own.
set(stepped_clock)
if(DTRUN_SANITIZE STREQUAL "")
  set(stepped_clock $<TARGET_FILE:stepped_clock>)
endif()
dtrun_test(tools/tests LINKS dtrun_launcher_test_support dtrun_examining dtrun_explaining dtrun_measuring dtrun::rendezvous GTest::gmock PROCESSORS 2
  SOURCES dtrun_attach dtrun_bench dtrun_ckpt dtrun_doctor dtrun_explain dtrun_jobs dtrun_plan dtrun_store dtrun_trace neighbours_memory
  DEFINITIONS DTRUN_BINARY="$<TARGET_FILE:dtrun_launcher>" DTRUN_PLAN_BINARY="$<TARGET_FILE:dtrun_plan>" DTRUN_STORE_BINARY="$<TARGET_FILE:dtrun_store>"
    DTRUN_CKPT_BINARY="$<TARGET_FILE:dtrun_ckpt>" DTRUN_DOCTOR_BINARY="$<TARGET_FILE:dtrun_doctor>" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" DTRUN_EXPLAIN_BINARY="$<TARGET_FILE:dtrun_explain>" FLIGHT_WORKER_BINARY="$<TARGET_FILE:flight_worker>"
    DTRUN_BENCH_BINARY="$<TARGET_FILE:dtrun_bench>" SPOILT_BENCH_BINARY="$<TARGET_FILE:spoilt_bench>" STORE_PLUGIN="$<TARGET_FILE:store_plugin>"
    DTRUN_STEPPED_CLOCK="${stepped_clock}"
  DEPENDS dtrun_launcher dtrun_bench dtrun_ckpt dtrun_doctor dtrun_explain dtrun_jobs flight_worker dtrun_plan dtrun_store spoilt_bench store_plugin)
if(DTRUN_SANITIZE STREQUAL "")
  add_dependencies(tools_tests stepped_clock)
endif()
