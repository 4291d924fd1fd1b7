dtrun_test(base/deadline_test.cc LINKS dtrun::base)
