// OwnEtcdClient: a client of etcd together with what it borrows; and the fixture of tests that
// share one etcd of one member.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "etcd/etcd_client.h"
#include "support/etcd_lab.h"

namespace dtrun::rendezvous {

struct OwnEtcdClient : Interrupt {
  explicit OwnEtcdClient(std::vector<base::HostPort> endpoints)
      : OwnEtcdClient(at(std::move(endpoints))) {}
  explicit OwnEtcdClient(EtcdOptions its_options)
      : options(std::move(its_options)), etcd(options, *this) {}
  static EtcdOptions at(std::vector<base::HostPort> endpoints) {
    EtcdOptions its_options;
    its_options.endpoints = std::move(endpoints);
    return its_options;
  }
  EtcdClient* operator->() { return &etcd; }
  /// All that stand there.
  std::vector<EtcdKeyValue> keys(const std::string& prefix) {
    return etcd
        .range(EtcdKeys::with_prefix(prefix), {}, base::Deadline::after(std::chrono::seconds(60)))
        .range.list;
  }

  EtcdOptions options;
  EtcdClient etcd;
};

class EtcdLabTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { lab_ = std::make_unique<testing_support::EtcdLab>(1); }
  static void TearDownTestSuite() { lab_.reset(); }
  void SetUp() override { REQUIRE_ETCD(*lab_); }
  static inline std::unique_ptr<testing_support::EtcdLab> lab_;
};

}  // namespace dtrun::rendezvous
