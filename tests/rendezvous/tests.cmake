foreach(name failure_report job_page store_core store worker_env)
  dtrun_test(rendezvous/${name}_test.cc LINKS dtrun::rendezvous)
endforeach()
