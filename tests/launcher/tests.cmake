# The real dtrun binary, run by tests.
add_library(dtrun_launcher_test_support STATIC launcher/launcher_job.cc launcher/living_processes.cc)
target_link_libraries(dtrun_launcher_test_support PUBLIC dtrun_test_support PRIVATE dtrun_flags)
target_compile_definitions(dtrun_launcher_test_support
  PUBLIC DTRUN_BINARY="$<TARGET_FILE:dtrun_launcher>" DTRUN_WORKERS="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
add_dependencies(dtrun_launcher_test_support dtrun_launcher)
foreach(name start bad_input)
  dtrun_test(launcher/${name}_test.cc LINKS dtrun_launcher_test_support dtrun::base GTest::gmock PROCESSORS 2)
endforeach()
