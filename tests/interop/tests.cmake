# One CTest test: its tests share PyTorch's server, which takes seconds to start.
dtrun_test(interop/store_tests LINKS dtrun::rendezvous ONE_CTEST_TEST SOURCES torch_store WITH rendezvous/store_promises.cc
  DEFINITIONS DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" DTRUN_STORE_BINARY="$<TARGET_FILE:dtrun_store>" DEPENDS dtrun_store)
add_test(NAME TorchStoreTest COMMAND interop_store_tests)
set_tests_properties(TorchStoreTest PROPERTIES LABELS torch TIMEOUT 600 PROCESSORS 2)
dtrun_test(interop/job_tests LINKS dtrun_slurm_lab PROCESSORS 2 TIMEOUT 300 LABEL torch SOURCES checkpoint_files torch_job
  DEPENDS examples dtrun_ckpt dtrun_launcher)

# All tests run with the newest PyTorch. With 2.11, which the recorded answers and vectors are from, run those that meet it on
# the wire: the store's two sides, and a job in each direction. A second whole would say the same again, and take minutes.
function(dtrun_older_torch_test name target filter)
  add_test(NAME ${name}.WithPyTorch211 COMMAND ${target} --gtest_filter=${filter})
  set_tests_properties(${name}.WithPyTorch211 PROPERTIES LABELS torch TIMEOUT 600 PROCESSORS 2 ENVIRONMENT DTRUN_TORCH_VERSION=2.11.0)
endfunction()
dtrun_older_torch_test(TorchStoreTest interop_store_tests "*")
dtrun_older_torch_test(TorchClientsTest conformance_torch_tests "*PresentClient*:*RandomConversations*")
dtrun_older_torch_test(TorchJobTest interop_job_tests "*UnmodifiedGlooProgram*:*WorkersRunUnderTorchrun*")
