add_executable(spoilt_bench tools/spoilt_bench.cc)
target_link_libraries(spoilt_bench PRIVATE dtrun_measuring dtrun_flags)
dtrun_test(tools/tests LINKS dtrun_measuring dtrun::rendezvous GTest::gmock PROCESSORS 2 SOURCES dtrun_bench dtrun_plan dtrun_store
  DEFINITIONS DTRUN_BINARY="$<TARGET_FILE:dtrun_launcher>" DTRUN_PLAN_BINARY="$<TARGET_FILE:dtrun_plan>" DTRUN_STORE_BINARY="$<TARGET_FILE:dtrun_store>"
    DTRUN_BENCH_BINARY="$<TARGET_FILE:dtrun_bench>" SPOILT_BENCH_BINARY="$<TARGET_FILE:spoilt_bench>"
  DEPENDS dtrun_launcher dtrun_bench dtrun_plan dtrun_store spoilt_bench)
