foreach(name deadline env error event_loop json log shared_memory socket)
  dtrun_test(base/${name}_test.cc LINKS dtrun::base)
endforeach()
