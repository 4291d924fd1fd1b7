#include "dispatch/result_wish.h"

#include <utility>
#include <vector>

#include "dtrun/base/check.h"

namespace dtrun::dtensor {
namespace {
thread_local std::vector<std::optional<ResultWish>> wishes;
}  // namespace

void ResultWish::enter(ResultWish wish) {
  wishes.emplace_back(std::move(wish));
}
void ResultWish::leave() {
  DT_CHECK(!wishes.empty());
  wishes.pop_back();
}
const ResultWish* ResultWish::innermost() {
  return wishes.empty() || !wishes.back() ? nullptr : &*wishes.back();
}

ResultWishScope::ResultWishScope(std::optional<ResultWish> wish) {
  wishes.push_back(std::move(wish));
}

}  // namespace dtrun::dtensor
