# One CTest test: its tests share PyTorch's server, which takes seconds to start.
add_executable(interop_torch_store_test interop/torch_store_test.cc)
target_link_libraries(interop_torch_store_test PRIVATE dtrun_test_support dtrun::rendezvous
  dtrun_test_main)
target_compile_definitions(interop_torch_store_test PRIVATE DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
  DTRUN_STORE_BINARY="$<TARGET_FILE:dtrun_store>")
add_dependencies(interop_torch_store_test dtrun_store)
add_test(NAME TorchStoreTest COMMAND interop_torch_store_test)
set_tests_properties(TorchStoreTest PROPERTIES LABELS torch TIMEOUT 600 PROCESSORS 2)
dtrun_test(interop/torch_job_test.cc LINKS dtrun_slurm_lab PROCESSORS 2 TIMEOUT 300 LABEL torch)
add_dependencies(interop_torch_job_test examples dtrun_launcher)
