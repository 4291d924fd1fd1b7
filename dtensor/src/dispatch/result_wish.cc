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

constinit thread_local bool RunTwiceScope::stands_ = false;

RunTwiceScope::RunTwiceScope(bool is_run_twice) : before_(stands_) {
  if (!is_run_twice) return;
  stands_ = true;
  no_wish_.emplace(std::nullopt);
}
RunTwiceScope::~RunTwiceScope() {
  stands_ = before_;
}

ResultWishScope::ResultWishScope(std::optional<ResultWish> wish) {
  wishes.push_back(std::move(wish));
}

}  // namespace dtrun::dtensor
