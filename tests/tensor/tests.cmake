foreach(test half dtype shape view copy)
  dtrun_test(tensor/${test}_test.cc LINKS dtrun::tensor)
endforeach()
