// A small GPT learns the bytes of a text, then writes some. The command line says how the ranks
// share the work; the model and its training are written as for one rank.
//
//     dtrun --nproc_per_node=4 train_gpt --mesh dp=2,tp=2 [--data FILE] [--steps 200]
//
// Axes: dp cuts the samples of a batch; fsdp cuts them, too, and what is kept of each parameter; tp
// cuts heads, hidden layers and the bytes that can come next.
#include <dtrun/dtrun.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace dtrun;

namespace {

constexpr std::int64_t kBytes = 256;

struct Options {
  std::vector<int> sizes;
  std::vector<std::string> axes;
  std::string data = "/usr/share/common-licenses/GPL-3";
  std::string csv;
  std::int64_t steps = 200, batch = 16, accumulate = 1, context = 64, every = 20, sample = 200;
  std::int64_t width = 64, layers = 2, heads = 4, seed = 1;
  double rate = 3e-3, clip = 1;
};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::kUsage, "train_gpt: " + what, "", remedy);
}

/// "dp=2,tp=2".
void read_mesh(const std::string& text, Options& options) {
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string axis = part.substr(0, equals);
    const int size = equals == std::string::npos ? 0 : std::atoi(part.c_str() + equals + 1);
    if ((axis != "dp" && axis != "fsdp" && axis != "tp") || size < 1) {
      refuse("--mesh " + text + " is not understood",
             "--mesh dp=2,tp=2: axes dp, fsdp and tp, sizes from 1");
    }
    options.axes.push_back(axis);
    options.sizes.push_back(size);
  }
}

using Setters = std::map<std::string, std::function<void(const std::string&)>>;

Setters setters_of(Options& options) {
  const auto count = [](std::int64_t& target, std::int64_t least) {
    return [&target, least](const std::string& text) {
      target = std::atoll(text.c_str());
      if (target < least) refuse("a value of " + text, "at least " + std::to_string(least));
    };
  };
  const auto text = [](std::string& target) {
    return [&target](const std::string& value) { target = value; };
  };
  const auto number = [](double& target) {
    return [&target](const std::string& value) { target = std::atof(value.c_str()); };
  };
  return {{"--mesh", [&options](const std::string& value) { read_mesh(value, options); }},
          {"--data", text(options.data)},
          {"--csv", text(options.csv)},
          {"--steps", count(options.steps, 1)},
          {"--batch", count(options.batch, 1)},
          {"--accumulate", count(options.accumulate, 1)},
          {"--context", count(options.context, 2)},
          {"--every", count(options.every, 1)},
          {"--sample", count(options.sample, 0)},
          {"--width", count(options.width, 1)},
          {"--layers", count(options.layers, 1)},
          {"--heads", count(options.heads, 1)},
          {"--seed", count(options.seed, 0)},
          {"--rate", number(options.rate)},
          {"--clip", number(options.clip)}};
}

Options read_options(int argc, char** argv) {
  Options options;
  const Setters setters = setters_of(options);
  std::string names;
  for (const auto& [name, set] : setters) names += (names.empty() ? "" : ", ") + name;
  for (int i = 1; i < argc; i += 2) {
    const auto found = setters.find(argv[i]);
    if (found == setters.end()) refuse("there is no option " + std::string(argv[i]), names);
    if (i + 1 == argc) refuse(found->first + " lacks its value", names + ", and a value");
    found->second(argv[i + 1]);
  }
  if (options.width % options.heads != 0)
    refuse("a width of " + std::to_string(options.width) + " for " + std::to_string(options.heads) +
               " heads",
           "a width that is a multiple of the heads");
  return options;
}

/// By the axis' name.
Placements along(const DeviceMesh& mesh,
                 const std::function<Placement(const std::string& axis)>& place) {
  Placements placements;
  for (const std::string& name : mesh.axis_names()) placements.push_back(place(name));
  return placements;
}

/// Samples are cut along dp and fsdp.
Tensor samples_on(const DeviceMesh& mesh, const Tensor& whole) {
  const Placements cut = along(mesh, [](const std::string& axis) -> Placement {
    return axis == "tp" ? Replicate() : Shard(0);
  });
  return distribute_tensor(whole, mesh, cut, {.source_rank = -1});
}

Tensor whole_on(const DeviceMesh& mesh, const Tensor& whole) {
  return distribute_tensor(whole, mesh, Placements(mesh.axis_names().size(), Replicate()),
                           {.source_rank = -1});
}

struct Attention : nn::Module {
  Attention(std::int64_t width, std::int64_t its_heads) : heads(its_heads) {
    for (nn::Linear* const layer : {&query, &key, &value, &output})
      *layer = nn::Linear(width, width);
    query = register_module("query", query);
    key = register_module("key", key);
    value = register_module("value", value);
    output = register_module("output", output);
  }
  Tensor forward(const Tensor& x) override {
    const auto split = [&](const Tensor& all) {
      return unflatten(all, -1, {heads, all.size(-1) / heads}).transpose(1, 2);
    };
    const Tensor mixed = scaled_dot_product_attention(split(query(x)), split(key(x)),
                                                      split(value(x)), {.is_causal = true});
    return output(flatten(mixed.transpose(1, 2), 2));
  }
  const std::int64_t heads;
  nn::Linear query{1, 1}, key{1, 1}, value{1, 1}, output{1, 1};
};

struct Block : nn::Module {
  explicit Block(const Options& options)
      : attention_norm(register_module("attention_norm", nn::LayerNorm(options.width))),
        attention(register_module("attention",
                                  nn::ModuleHolder<Attention>(options.width, options.heads))),
        norm(register_module("norm", nn::LayerNorm(options.width))),
        up(register_module("up", nn::Linear(options.width, 4 * options.width))),
        down(register_module("down", nn::Linear(4 * options.width, options.width))) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attention(attention_norm(x));
    return y + down(gelu(up(norm(y))));
  }
  nn::LayerNorm attention_norm;
  nn::ModuleHolder<Attention> attention;
  nn::LayerNorm norm;
  nn::Linear up, down;
};

struct Gpt : nn::Module {
  Gpt(const Options& options, DeviceMesh its_mesh)
      : mesh(std::move(its_mesh)),
        bytes(register_module("bytes", nn::Embedding(kBytes, options.width))),
        places(register_module("places", nn::Embedding(options.context, options.width))),
        blocks(register_module("blocks", nn::ModuleList())),
        norm(register_module("norm", nn::LayerNorm(options.width))),
        head(register_module("head", nn::Linear(options.width, kBytes, {.bias = false}))) {
    for (std::int64_t i = 0; i < options.layers; ++i)
      blocks->push_back(nn::ModuleHolder<Block>(options));
    nn::init::normal_(bytes->weight, 0, 0.02);
    nn::init::normal_(places->weight, 0, 0.02);
    distribute_module(*this, mesh, {.partition = cut});
  }
  /// [samples, length] to the scores of the byte that comes next, [samples, length, 256].
  Tensor forward(const Tensor& text) override {
    Tensor x = bytes(text) + places(whole_on(mesh, arange(text.size(1))));
    for (nn::Module& block : *blocks) x = block(x);
    return head(norm(x));
  }

  const DeviceMesh mesh;
  nn::Embedding bytes, places;
  nn::ModuleList blocks;
  nn::LayerNorm norm;
  nn::Linear head;

 private:
  /// Columns of what goes into heads and hidden layers, rows of what comes out of them: one sum at
  /// the end of each. Along fsdp the first dim of everything.
  static void cut(const std::string& path, nn::Module& module, const DeviceMesh& mesh) {
    const std::string name = path.substr(path.rfind('.') + 1);
    const bool in =
        name == "query" || name == "key" || name == "value" || name == "up" || name == "head";
    const bool out = name == "output" || name == "down";
    for (const auto& [own, parameter] : module.own_parameters()) {
      const bool is_weight = own == "weight";
      module.distribute_parameter(
          own, mesh, along(mesh, [&, kind = is_weight](const std::string& axis) -> Placement {
            if (axis == "fsdp") return Shard(0);
            if (axis == "tp" && in) return Shard(0);
            if (axis == "tp" && out && kind) return Shard(1);
            return Replicate();
          }));
    }
  }
};

/// Windows of a text, chosen by chance; the same ones on every rank.
class Text {
 public:
  explicit Text(const Options& options) : options_(options) {
    std::ifstream file(options.data, std::ios::binary);
    if (!file) refuse("cannot read " + options.data, "--data FILE");
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    trained_ = static_cast<std::int64_t>(bytes_.size()) * 9 / 10;
    if (trained_ < 10 * options.context)
      refuse(options.data + " has " + std::to_string(bytes_.size()) + " bytes", "a longer text");
  }
  enum class Part { trained, kept_back };
  /// Texts, and what comes next at each place of them.
  std::pair<Tensor, Tensor> windows(Part part, std::uint64_t number) const {
    std::mt19937_64 random(static_cast<std::uint64_t>(options_.seed) * 1'000'003 + number);
    const std::int64_t first = part == Part::trained ? 0 : trained_;
    const std::int64_t last =
        (part == Part::trained ? trained_ : static_cast<std::int64_t>(bytes_.size())) -
        options_.context - 1;
    std::vector<std::int64_t> texts, next;
    for (std::int64_t i = 0; i < options_.batch; ++i) {
      const auto range = static_cast<std::uint64_t>(last - first);
      const std::int64_t at = first + static_cast<std::int64_t>(random() % range);
      for (std::int64_t k = 0; k < options_.context; ++k) {
        texts.push_back(byte(at + k));
        next.push_back(byte(at + k + 1));
      }
    }
    const Shape shape{options_.batch, options_.context};
    return {tensor_from(texts, shape, DType::i64), tensor_from(next, shape, DType::i64)};
  }
  std::string beginning() const { return bytes_.substr(0, 16); }

 private:
  std::int64_t byte(std::int64_t at) const {
    return static_cast<unsigned char>(bytes_[static_cast<std::size_t>(at)]);
  }
  const Options& options_;
  std::string bytes_;
  std::int64_t trained_;
};

class Training {
 public:
  explicit Training(const Options& options)
      : options_(options),
        text_(options),
        mesh_(dist::init_device_mesh("cpu", options.sizes, options.axes)),
        model_(options, mesh_),
        optimizer_(model_.parameters(), {.lr = options.rate, .weight_decay = 0.1}),
        schedule_(optimizer_, std::max<std::int64_t>(1, options.steps / 10), options.steps + 1,
                  0.1),
        speaks_(dist::get_rank() == 0) {
    if (speaks_ && !options.csv.empty()) csv_.open(options.csv);
    if (csv_.is_open()) csv_ << "step,loss\n";
  }

  void run() {
    const auto start = Clock::now();
    double loss = 0;
    for (std::int64_t step = 1; step <= options_.steps; ++step) {
      const double rate = optimizer_.lr();
      loss = one_step(step);
      if (csv_.is_open()) csv_ << step << "," << loss << "\n";
      if (step % options_.every != 0 && step != options_.steps) continue;
      const double kept_back = validation();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const double each =
          static_cast<double>(options_.batch * options_.accumulate * options_.context);
      if (speaks_)
        print(
            "step {:4}  loss {:.4f}  validation {:.4f}  rate {:.5f}  {:.0f} bytes/s  {:.0f} s left",
            step, loss, kept_back, rate, each * static_cast<double>(step) / seconds,
            seconds / static_cast<double>(step) * static_cast<double>(options_.steps - step));
    }
    if (options_.sample > 0) write_text();
    if (speaks_) print("loss: {:.6f}", loss);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Tensor loss_of(const std::pair<Tensor, Tensor>& windows) {
    const Tensor scores = model_(samples_on(mesh_, windows.first));
    return cross_entropy(flatten(scores, 0, 1), flatten(samples_on(mesh_, windows.second)));
  }
  double one_step(std::int64_t step) {
    double loss = 0;
    for (std::int64_t part = 0; part < options_.accumulate; ++part) {
      const auto number = static_cast<std::uint64_t>(step * options_.accumulate + part);
      const Tensor term = loss_of(text_.windows(Text::Part::trained, number)) *
                          (1.0 / static_cast<double>(options_.accumulate));
      term.backward();
      loss += term.item();
    }
    if (!std::isfinite(loss))
      refuse("the loss of step " + std::to_string(step) + " is no number", "a lower --rate");
    optim::clip_grad_norm_(optimizer_.parameters(), options_.clip);
    optimizer_.step();
    optimizer_.zero_grad();
    schedule_.step();
    return loss;
  }
  double validation() {
    const NoGrad no_grad;
    return loss_of(text_.windows(Text::Part::kept_back, 0)).item();
  }
  /// A byte at a time, by chance; every rank draws the same ones.
  void write_text() {
    const NoGrad no_grad;
    std::mt19937_64 random(static_cast<std::uint64_t>(options_.seed));
    std::string written = text_.beginning();
    for (std::int64_t i = 0; i < options_.sample; ++i) {
      const auto length = std::min(written.size(), static_cast<std::size_t>(options_.context));
      std::vector<std::int64_t> last;
      for (const char letter : written.substr(written.size() - length))
        last.push_back(static_cast<unsigned char>(letter));
      const Tensor text = tensor_from(last, {1, static_cast<std::int64_t>(length)}, DType::i64);
      const Tensor scores = model_(whole_on(mesh_, text));
      std::vector<double> weights = scores.full_tensor().to_vector();
      weights.erase(weights.begin(), weights.end() - kBytes);
      const double most = *std::ranges::max_element(weights);
      for (double& weight : weights) weight = std::exp((weight - most) / 0.7);
      written += static_cast<char>(
          std::discrete_distribution<int>(weights.begin(), weights.end())(random));
    }
    if (speaks_) print("{}", written);
  }

  const Options& options_;
  const Text text_;
  const DeviceMesh mesh_;
  Gpt model_;
  optim::AdamW optimizer_;
  optim::WarmupCosineLR schedule_;
  const bool speaks_;
  std::ofstream csv_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options = read_options(argc, argv);
  dist::init_process_group();
  if (options.axes.empty()) {
    options.axes = {"dp"};
    options.sizes = {dist::get_world_size()};
  }
  manual_seed(static_cast<std::uint64_t>(options.seed));
  Training(options).run();
  dist::destroy_process_group();
}
