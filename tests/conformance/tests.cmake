# PyTorch's clients, and its server, against ours.
add_executable(conformance_store_servers conformance/store_servers.cc)
target_link_libraries(conformance_store_servers PRIVATE dtrun::rendezvous dtrun_flags)
add_executable(conformance_store_differential conformance/store_differential.cc conformance/store_script.cc)
target_link_libraries(conformance_store_differential PRIVATE dtrun_test_support dtrun::rendezvous GTest::gtest dtrun_flags)
target_compile_definitions(conformance_store_differential PRIVATE DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
dtrun_test(conformance/torch_tests PROCESSORS 2 TIMEOUT 300 LABEL torch SOURCES torch_clients
  DEFINITIONS DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
  DEPENDS conformance_store_servers conformance_store_differential dtrun_launcher)
