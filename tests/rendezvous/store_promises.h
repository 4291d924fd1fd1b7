// The promises of store.h as tests over a factory of stores. The tests are in store_promises.cc.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "dtrun/rendezvous/store.h"

namespace dtrun::rendezvous {

struct StoreFactory {
  std::string name;                              ///< of the kind of store, for the test's name
  std::function<std::shared_ptr<Store>()> make;  ///< null: cannot be had here
};
inline void PrintTo(const StoreFactory& factory, std::ostream* out) {
  *out << factory.name;
}
inline std::string name_of(const testing::TestParamInfo<StoreFactory>& info) {
  return info.param.name;
}

class StorePromises : public testing::TestWithParam<StoreFactory> {
 protected:
  void SetUp() override {
    store_ = GetParam().make();
    if (!store_) GTEST_SKIP() << "there is no " << GetParam().name << " here";
  }
  std::shared_ptr<Store> store_;
};

}  // namespace dtrun::rendezvous
