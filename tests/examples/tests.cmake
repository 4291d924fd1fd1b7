dtrun_test(examples/output_test.cc PROCESSORS 2)
target_compile_definitions(examples_output_test PRIVATE DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
add_dependencies(examples_output_test examples dtrun_launcher)
