dtrun_test(tools/dtrun_store_test.cc LINKS dtrun::rendezvous GTest::gmock PROCESSORS 2)
target_compile_definitions(tools_dtrun_store_test PRIVATE DTRUN_STORE_BINARY="$<TARGET_FILE:dtrun_store>")
add_dependencies(tools_dtrun_store_test dtrun_store)
