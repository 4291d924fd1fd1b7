# The real dtrun binary, run by tests.
add_library(dtrun_launcher_test_support STATIC launcher/launcher_job.cc launcher/living_processes.cc
  launcher/private_machine.cc)
target_link_libraries(dtrun_launcher_test_support PUBLIC dtrun_test_support PRIVATE dtrun_flags)
target_compile_definitions(dtrun_launcher_test_support
  PUBLIC DTRUN_BINARY="$<TARGET_FILE:dtrun_launcher>" DTRUN_WORKERS="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
add_dependencies(dtrun_launcher_test_support dtrun_launcher)
set(job_links dtrun_launcher_test_support dtrun::launcher GTest::gmock)
add_library(dtrun_test_cuda_driver MODULE launcher/cuda_driver.cc)
target_link_options(dtrun_test_cuda_driver PRIVATE -Wl,-soname,libcuda.so.1)
target_link_libraries(dtrun_test_cuda_driver PRIVATE dtrun_flags)
# Decisions.
dtrun_test(launcher/tests LINKS dtrun::launcher GTest::gmock
  SOURCES binding cgroup_place command_line config course decisions engine guard_link head_file launch_plan machine_topology option_binding option_reference output_decisions
    python_options remote_shell rendezvous_decisions stop_options supervision
  DEFINITIONS DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" DTRUN_CUDA_DRIVER="$<TARGET_FILE:dtrun_test_cuda_driver>"
  DEPENDS dtrun_test_cuda_driver)
# dtrun itself, where it mostly waits.
dtrun_test(launcher/waiting_tests LINKS ${job_links} SOURCES dry_run hanging_files notice pmi start_report)
dtrun_test(launcher/stuck_tests LINKS ${job_links} COST 32 SOURCES stuck DEPENDS elastic_worker)
# What is checked by the byte is as much as the issue demands, and less under sanitizers.
if(DTRUN_SANITIZE STREQUAL "")
  set(amounts DTRUN_TREE_HOSTS=200 DTRUN_JOBS_IN_A_ROW=25 DTRUN_FLOOD_BYTES=104857600)
else()
  set(amounts DTRUN_TREE_HOSTS=60 DTRUN_JOBS_IN_A_ROW=3 DTRUN_FLOOD_BYTES=8388608)
endif()
# The sanitizers' own checks at the end of a program do not work under gdb.
set(debug_tests)
if(DTRUN_SANITIZE STREQUAL "")
  set(debug_tests debug_rank)
endif()
# Jobs. Of the kill matrix every fifth cell, and a few random kills.
dtrun_test(launcher/job_tests LINKS ${job_links} PROCESSORS 2
  SOURCES adopt bad_input console containment cpuset ${debug_tests} elastic event_file failure guard joining kill_matrix log_files metrics nodes oom output pid_namespace
    hosts program_file programs rendezvous restart_commands start stdin stop stopped_agent time torchrun_suite
  DEFINITIONS ${amounts} DTRUN_KILL_TIMES=5 DTRUN_MATRIX_STEP=5 DTRUN_RANDOM_KILLS=30 DTRUN_RANDOM_SEED=1
  DEPENDS elastic_worker flood_worker hello page_worker)
# The same by the hundred.
if(DTRUN_LONG_TESTS)
  dtrun_test(launcher/long_tests LINKS ${job_links} PROCESSORS 2 LABEL long TIMEOUT 1800 SOURCES containment kill_matrix
    DEFINITIONS DTRUN_LONG DTRUN_KILL_TIMES=100 DTRUN_MATRIX_STEP=1 DTRUN_RANDOM_KILLS=1000 DTRUN_RANDOM_SEED=2
    DEPENDS page_worker)
endif()
foreach(worker elastic_worker page_worker flood_worker)
  add_executable(${worker} launcher/workers/${worker}.cc)
  target_include_directories(${worker} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${worker} PRIVATE dtrun::rendezvous dtrun_flags)
endforeach()
if(DTRUN_SANITIZE STREQUAL "")
  add_library(stepped_clock MODULE launcher/workers/stepped_clock.cc)
  target_link_libraries(stepped_clock PRIVATE dtrun_flags)
  add_dependencies(launcher_job_tests stepped_clock)
  target_compile_definitions(launcher_job_tests PRIVATE DTRUN_STEPPED_CLOCK="$<TARGET_FILE:stepped_clock>")
  add_library(hanging_files MODULE launcher/workers/hanging_files.cc)
  target_link_libraries(hanging_files PRIVATE dtrun_flags ${CMAKE_DL_LIBS})
  add_library(fast_clock MODULE launcher/workers/fast_clock.cc)
  target_link_libraries(fast_clock PRIVATE dtrun_flags ${CMAKE_DL_LIBS})
  add_dependencies(launcher_waiting_tests hanging_files fast_clock)
  target_compile_definitions(launcher_waiting_tests
    PRIVATE DTRUN_HANGING_FILES="$<TARGET_FILE:hanging_files>" DTRUN_FAST_CLOCK="$<TARGET_FILE:fast_clock>")
endif()

# One CTest test: its tests share an etcd.
dtrun_test(launcher/etcd_tests LINKS dtrun_launcher_test_support dtrun_etcd_lab GTest::gmock ONE_CTEST_TEST SOURCES etcd_job
  DEPENDS elastic_worker)
target_include_directories(launcher_etcd_tests PRIVATE ${PROJECT_SOURCE_DIR}/rendezvous/src)  # its client of etcd
add_test(NAME EtcdJobTest COMMAND launcher_etcd_tests)
set_tests_properties(EtcdJobTest PROPERTIES LABELS launcher TIMEOUT 300 PROCESSORS 2 COST 17
  SKIP_REGULAR_EXPRESSION "no [eE]tcd here")
