# The real dtrun binary, run by tests.
add_library(dtrun_launcher_test_support STATIC launcher/launcher_job.cc launcher/living_processes.cc)
target_link_libraries(dtrun_launcher_test_support PUBLIC dtrun_test_support PRIVATE dtrun_flags)
target_compile_definitions(dtrun_launcher_test_support
  PUBLIC DTRUN_BINARY="$<TARGET_FILE:dtrun_launcher>" DTRUN_WORKERS="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
add_dependencies(dtrun_launcher_test_support dtrun_launcher)
dtrun_test(launcher/bad_input_test.cc LINKS dtrun_launcher_test_support dtrun::base GTest::gmock PROCESSORS 2)
foreach(name start containment elastic failure joining output nodes rendezvous stuck time)
  dtrun_test(launcher/${name}_test.cc
    LINKS dtrun_launcher_test_support dtrun::launcher GTest::gmock PROCESSORS 2)
endforeach()
dtrun_test(launcher/binding_test.cc LINKS dtrun::launcher GTest::gmock)
dtrun_test(launcher/engine_test.cc LINKS dtrun::launcher GTest::gmock)
dtrun_test(launcher/decisions_test.cc LINKS dtrun::launcher GTest::gmock)
dtrun_test(launcher/head_file_test.cc LINKS dtrun::launcher GTest::gmock)
dtrun_test(launcher/rendezvous_decisions_test.cc LINKS dtrun::launcher GTest::gmock)
target_compile_definitions(launcher_containment_test PRIVATE DTRUN_KILL_TIMES=5)
# What is checked by the byte is as much as the issue demands, and less under sanitizers.
if(DTRUN_SANITIZE STREQUAL "")
  target_compile_definitions(launcher_output_test PRIVATE DTRUN_FLOOD_BYTES=104857600)
else()
  target_compile_definitions(launcher_output_test PRIVATE DTRUN_FLOOD_BYTES=8388608)
endif()

# The same matrix by the hundred.
add_executable(launcher_containment_long_test launcher/containment_test.cc)
target_compile_definitions(launcher_containment_long_test PRIVATE DTRUN_KILL_TIMES=100 DTRUN_LONG)
target_link_libraries(launcher_containment_long_test PRIVATE dtrun_launcher_test_support GTest::gmock GTest::gtest_main dtrun_flags)
gtest_discover_tests(launcher_containment_long_test TEST_PREFIX Long. DISCOVERY_MODE PRE_TEST
  PROPERTIES LABELS long TIMEOUT 600 PROCESSORS 2)
foreach(worker elastic_worker page_worker flood_worker)
  add_executable(${worker} launcher/workers/${worker}.cc)
  target_include_directories(${worker} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${worker} PRIVATE dtrun::rendezvous dtrun_flags)
endforeach()
foreach(name failure_test containment_test containment_long_test)
  add_dependencies(launcher_${name} page_worker)
endforeach()
add_dependencies(launcher_output_test flood_worker)
add_dependencies(launcher_elastic_test elastic_worker)
add_dependencies(launcher_time_test elastic_worker)
if(DTRUN_SANITIZE STREQUAL "")
  add_library(stepped_clock MODULE launcher/workers/stepped_clock.cc)
  target_link_libraries(stepped_clock PRIVATE dtrun_flags)
  add_dependencies(launcher_time_test stepped_clock)
  target_compile_definitions(launcher_time_test PRIVATE DTRUN_STEPPED_CLOCK="$<TARGET_FILE:stepped_clock>")
endif()
add_dependencies(launcher_stuck_test elastic_worker)

# One CTest test: its tests share an etcd.
add_executable(launcher_etcd_job_test launcher/etcd_job_test.cc)
target_link_libraries(launcher_etcd_job_test PRIVATE dtrun_launcher_test_support dtrun_etcd_lab dtrun::rendezvous
  GTest::gmock GTest::gtest_main dtrun_flags)
add_dependencies(launcher_etcd_job_test elastic_worker)
add_dependencies(tests_launcher launcher_etcd_job_test)
add_test(NAME EtcdJobTest COMMAND launcher_etcd_job_test)
set_tests_properties(EtcdJobTest PROPERTIES LABELS launcher TIMEOUT 300 PROCESSORS 2
  SKIP_REGULAR_EXPRESSION "no [eE]tcd here")
