add_executable(killed_at examples/workers/killed_at.cc)
target_link_libraries(killed_at PRIVATE dtrun_flags)

add_library(dtrun_test_tutorials STATIC examples/tutorials.cc)
target_include_directories(dtrun_test_tutorials PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(dtrun_test_tutorials PRIVATE dtrun_flags)

# The demo on two CUDA devices whose memory is the host's.
add_executable(dtensor_demo_on_devices ${PROJECT_SOURCE_DIR}/examples/dtensor_demo.cc examples/on_simulated_devices.cc)
target_include_directories(dtensor_demo_on_devices PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(dtensor_demo_on_devices PRIVATE dtrun_simulated_staging dtrun::dtrun dtrun_flags)

# The promise is a second; a sanitizer makes every process several times slower.
dtrun_test(examples/tests LINKS dtrun_test_tutorials dtrun_launcher_test_support dtrun::launcher GTest::gmock PROCESSORS 2
  SOURCES engine_files output training tutorial tutorial_kill
  DEFINITIONS DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    DTRUN_KILL_NAMED_WITHIN_MS=$<IF:$<BOOL:${DTRUN_SANITIZE}>,5000,1000>
  DEPENDS examples dtensor_demo_on_devices killed_at dtrun_launcher)
if(DTRUN_LONG_TESTS)
  dtrun_test(examples/long_tests LINKS dtrun_launcher_test_support LABEL long TIMEOUT 2400 PROCESSORS 2 SOURCES training_kills
    DEFINITIONS DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" DEPENDS examples dtrun_launcher)
endif()
dtrun_test(examples/lab_tests LINKS dtrun_test_tutorials dtrun_slurm_lab GTest::gmock ONE_CTEST_TEST SOURCES tutorial_slurm
  DEPENDS examples)
dtrun_suite_test(examples_lab_tests TutorialSlurm)
