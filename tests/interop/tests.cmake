# One CTest test: its tests share PyTorch's server, which takes seconds to start.
dtrun_test(interop/store_tests LINKS dtrun::rendezvous ONE_CTEST_TEST SOURCES torch_store WITH rendezvous/store_promises.cc
  DEFINITIONS DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" DTRUN_STORE_BINARY="$<TARGET_FILE:dtrun_store>" DEPENDS dtrun_store)
add_test(NAME TorchStoreTest COMMAND interop_store_tests)
set_tests_properties(TorchStoreTest PROPERTIES LABELS torch TIMEOUT 600 PROCESSORS 2)
dtrun_test(interop/job_tests LINKS dtrun_slurm_lab PROCESSORS 2 TIMEOUT 300 LABEL torch SOURCES torch_job
  DEPENDS examples dtrun_launcher)
