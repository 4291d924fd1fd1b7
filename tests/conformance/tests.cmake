# PyTorch's clients, and its server, against ours.
add_executable(conformance_store_servers conformance/store_servers.cc)
target_link_libraries(conformance_store_servers PRIVATE dtrun::rendezvous dtrun_flags)
dtrun_test(conformance/torch_clients_test.cc PROCESSORS 2 TIMEOUT 300 LABEL torch)
target_compile_definitions(conformance_torch_clients_test PRIVATE
  DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
add_dependencies(conformance_torch_clients_test conformance_store_servers dtrun_launcher)
add_executable(conformance_store_differential conformance/store_differential.cc conformance/store_script.cc)
target_link_libraries(conformance_store_differential PRIVATE dtrun_test_support dtrun::rendezvous GTest::gtest dtrun_flags)
target_compile_definitions(conformance_store_differential PRIVATE DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(conformance_torch_clients_test conformance_store_differential)
