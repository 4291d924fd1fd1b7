dtrun_test(base/tests LINKS dtrun::base GTest::gmock
  SOURCES background_call backoff base64 child_birth child_process cpu_list deadline dynamic_library env error event_loop json line_relay
    log process_tree quick_mutex shared_memory small_blocks socket split tool_process trace_file unique_fd)
