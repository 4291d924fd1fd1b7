add_library(dtrun_house_rules STATIC house/house_rules.cc)
target_include_directories(dtrun_house_rules PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(dtrun_house_rules PRIVATE dtrun_flags)
dtrun_test(house/tests LINKS dtrun_house_rules SOURCES house DEFINITIONS DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
