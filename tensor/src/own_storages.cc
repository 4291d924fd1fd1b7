#include "dtrun/tensor/own_storages.h"

namespace dtrun::tensors {

constinit thread_local OwnStorages* OwnStorages::innermost_ = nullptr;

OwnStorages::OwnStorages() : around_(innermost_) {
  innermost_ = this;
}
OwnStorages::~OwnStorages() {
  innermost_ = around_;
}

void OwnStorages::note_in_all(const Storage& storage) {
  for (OwnStorages* each = innermost_; each != nullptr; each = each->around_)
    each->made_.insert(&storage);
}

}  // namespace dtrun::tensors
