#include "dtrun/dtensor/checkpoint/state.h"

#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;

namespace {

/// Tensors that are there already, and take the numbers in place.
class TensorPartOfState : public Stateful {
 public:
  explicit TensorPartOfState(nn::StateDict tensors) : tensors_(std::move(tensors)) {}
  Saved saved(const NamedTensors&) const override { return {.tensors = tensors_}; }
  nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
    return tensors_;
  }
  void restore(const Loaded&) override {}

 private:
  const nn::StateDict tensors_;
};

class ModulePart : public Stateful {
 public:
  explicit ModulePart(nn::Module& module) : module_(module) {}
  Saved saved(const NamedTensors&) const override { return {.tensors = module_.state_dict()}; }
  nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
    return module_.state_dict();
  }
  void restore(const Loaded&) override {}
  NamedTensors parameters() const override { return module_.named_parameters(); }

 private:
  nn::Module& module_;
};

class SchedulePart : public Stateful {
 public:
  explicit SchedulePart(optim::LRScheduler& schedule) : schedule_(schedule) {}
  Saved saved(const NamedTensors&) const override {
    return {.tensors = {}, .values = {{"last_epoch", schedule_.last_epoch()}}};
  }
  nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
    return {};
  }
  void restore(const Loaded& loaded) override {
    schedule_.set_last_epoch(std::get<std::int64_t>(loaded.values.at("last_epoch")));
  }

 private:
  optim::LRScheduler& schedule_;
};

class DataPart : public Stateful {
 public:
  explicit DataPart(data::DataLoader& loader) : loader_(loader) {}
  Saved saved(const NamedTensors&) const override {
    const data::DataPosition position = loader_.position();
    return {.tensors = {}, .values = {{"epoch", position.epoch}, {"step", position.step}}};
  }
  nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
    return {};
  }
  void restore(const Loaded& loaded) override {
    loader_.set_position({std::get<std::int64_t>(loaded.values.at("epoch")),
                          std::get<std::int64_t>(loaded.values.at("step"))});
  }

 private:
  data::DataLoader& loader_;
};

class RandomPart : public Stateful {
 public:
  Saved saved(const NamedTensors&) const override {
    const RandomState state = random_state();
    return {.tensors = {},
            .values = {},
            .rank_values = {{"seed", static_cast<std::int64_t>(state.seed)},
                            {"calls", static_cast<std::int64_t>(state.calls)}}};
  }
  nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
    return {};
  }
  void restore(const Loaded& loaded) override {
    const std::vector<Value>& seeds = loaded.rank_values.at("seed");
    const std::vector<Value>& calls = loaded.rank_values.at("calls");
    // With another number of ranks none of the seeds is anybody's own. Each rank keeps its seed,
    // and all go on after the calls of rank 0, so that a later call draws new numbers.
    const bool is_own = seeds.size() == static_cast<std::size_t>(loaded.ranks);
    const auto from = is_own ? static_cast<std::size_t>(loaded.rank) : 0;
    RandomState state = random_state();
    if (is_own) state.seed = static_cast<std::uint64_t>(std::get<std::int64_t>(seeds.at(from)));
    state.calls = static_cast<std::uint64_t>(std::get<std::int64_t>(calls.at(from)));
    set_random_state(state);
  }
};

/// A variable of the program's.
template <typename T>
class ValuePart : public Stateful {
 public:
  explicit ValuePart(T& value) : value_(value) {}
  Saved saved(const NamedTensors&) const override {
    return {.tensors = {}, .values = {{"", value_}}};
  }
  nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
    return {};
  }
  void restore(const Loaded& loaded) override { value_ = std::get<T>(loaded.values.at("")); }

 private:
  T& value_;
};

template <typename Part, typename... Args>
std::shared_ptr<Stateful> part_of(Args&&... args) {
  return std::make_shared<Part>(std::forward<Args>(args)...);
}

}  // namespace

using Entry = State::Entry;

Entry::Entry(std::string its_name, const Tensor& tensor)
    : name(std::move(its_name)), part(part_of<TensorPartOfState>(nn::StateDict{{"", tensor}})) {}
Entry::Entry(std::string its_name, const nn::StateDict& tensors)
    : name(std::move(its_name)), part(part_of<TensorPartOfState>(tensors)) {}
Entry::Entry(std::string its_name, nn::Module& module)
    : name(std::move(its_name)), part(part_of<ModulePart>(module)) {}
Entry::Entry(std::string its_name, optim::LRScheduler& schedule)
    : name(std::move(its_name)), part(part_of<SchedulePart>(schedule)) {}
Entry::Entry(std::string its_name, data::DataLoader& loader)
    : name(std::move(its_name)), part(part_of<DataPart>(loader)) {}
Entry::Entry(std::string its_name, ThreadRandom)
    : name(std::move(its_name)), part(part_of<RandomPart>()) {}
Entry::Entry(std::string its_name, bool& value)
    : name(std::move(its_name)), part(part_of<ValuePart<bool>>(value)) {}
Entry::Entry(std::string its_name, std::int64_t& value)
    : name(std::move(its_name)), part(part_of<ValuePart<std::int64_t>>(value)) {}
Entry::Entry(std::string its_name, double& value)
    : name(std::move(its_name)), part(part_of<ValuePart<double>>(value)) {}
Entry::Entry(std::string its_name, std::string& value)
    : name(std::move(its_name)), part(part_of<ValuePart<std::string>>(value)) {}
// Not owned: the program's own object.
Entry::Entry(std::string its_name, Stateful& its_part)
    : name(std::move(its_name)), part(std::shared_ptr<Stateful>(), &its_part) {}
Entry::Entry(std::string its_name, std::shared_ptr<Stateful> its_part)
    : name(std::move(its_name)), part(std::move(its_part)) {}

State::State(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) add(entry);
}

void State::add(Entry entry) {
  if (std::ranges::find(entries_, entry.name, &Entry::name) != entries_.end())
    throw Error(ErrorCode::kInvalidArgument, "a state has \"" + entry.name + "\" twice", "",
                "a name of its own for each part");
  entries_.push_back(std::move(entry));
}

std::string full_name(const std::string& part, const std::string& name) {
  return part + (part.empty() || name.empty() ? "" : ".") + name;
}

nn::StateDict empty_like(const nn::StateDict& state) {
  nn::StateDict made;
  for (const auto& [name, tensor] : state) made.insert(name, zeros_like(tensor.detach()));
  return made;
}

}  // namespace dtrun::dtensor::dcp
