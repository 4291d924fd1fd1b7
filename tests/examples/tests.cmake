add_executable(killed_at examples/workers/killed_at.cc)
target_link_libraries(killed_at PRIVATE dtrun_flags)

add_library(dtrun_test_tutorials STATIC examples/tutorials.cc)
target_include_directories(dtrun_test_tutorials PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(dtrun_test_tutorials PRIVATE dtrun_flags)

foreach(name output tutorial tutorial_kill)
  dtrun_test(examples/${name}_test.cc LINKS GTest::gmock PROCESSORS 2)
  target_compile_definitions(examples_${name}_test PRIVATE DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_dependencies(examples_${name}_test examples killed_at dtrun_launcher)
endforeach()
target_link_libraries(examples_tutorial_test PRIVATE dtrun_test_tutorials)
target_link_libraries(examples_tutorial_kill_test PRIVATE dtrun_launcher_test_support)
# The promise is a second; a sanitizer makes every process several times slower.
target_compile_definitions(examples_tutorial_kill_test PRIVATE
  DTRUN_KILL_NAMED_WITHIN_MS=$<IF:$<BOOL:${DTRUN_SANITIZE}>,5000,1000>)
dtrun_test(examples/engine_files_test.cc LINKS dtrun::launcher GTest::gmock PROCESSORS 2)
target_compile_definitions(examples_engine_files_test PRIVATE
  DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(examples_engine_files_test dtrun_launcher hello)
dtrun_lab_test(examples/tutorial_slurm_test.cc TutorialSlurmTest LINKS dtrun_test_tutorials GTest::gmock)
add_dependencies(examples_tutorial_slurm_test examples)
