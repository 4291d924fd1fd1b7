dtrun_test(tools/tests LINKS dtrun::rendezvous GTest::gmock PROCESSORS 2 SOURCES dtrun_plan dtrun_store
  DEFINITIONS DTRUN_PLAN_BINARY="$<TARGET_FILE:dtrun_plan>" DTRUN_STORE_BINARY="$<TARGET_FILE:dtrun_store>" DEPENDS dtrun_plan dtrun_store)
