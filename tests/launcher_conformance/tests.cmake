# The same cases with torchrun and with dtrun.
add_executable(launcher_conformance_worker launcher_conformance/worker.cc)
target_link_libraries(launcher_conformance_worker PRIVATE dtrun_flags)
add_executable(launcher_conformance_test launcher_conformance/launcher_conformance_test.cc
  launcher_conformance/case_run.cc launcher_conformance/cases.cc launcher_conformance/differences.cc
  launcher_conformance/facts.cc)
target_link_libraries(launcher_conformance_test PRIVATE dtrun_launcher_test_support dtrun::base fmt::fmt
  GTest::gmock dtrun_test_main)
target_compile_definitions(launcher_conformance_test PRIVATE
  DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
  DTRUN_CONFORMANCE_SOURCES="${CMAKE_CURRENT_SOURCE_DIR}/launcher_conformance"
  DTRUN_CONFORMANCE_WORKER="$<TARGET_FILE:launcher_conformance_worker>")
add_dependencies(launcher_conformance_test launcher_conformance_worker)
add_dependencies(tests_launcher launcher_conformance_test)
add_test(NAME LauncherConformance.Dtrun COMMAND launcher_conformance_test)
set_tests_properties(LauncherConformance.Dtrun PROPERTIES LABELS launcher TIMEOUT 300 PROCESSORS 2)
if(DTRUN_LONG_TESTS)
  add_test(NAME LauncherConformance.Torchrun COMMAND launcher_conformance_test)
  set_tests_properties(LauncherConformance.Torchrun PROPERTIES LABELS long TIMEOUT 900 PROCESSORS 2
    ENVIRONMENT "LAUNCHER=torchrun;DTRUN_TORCH_VERSION=2.11.0" SKIP_REGULAR_EXPRESSION "no PyTorch here")
endif()
