// A small network learns to read digits of 8 x 8 pixels. The command line says how the ranks share
// the work; the network and its training are written as for one rank.
//
//     dtrun --nproc_per_node=4 train_mlp --mesh dp=2,tp=2 [--data digits.csv|made] [--epochs 20]
//
// Axes: dp cuts the samples of a batch, tp the hidden layer. The numbers of the first weights are a
// formula of their index, so that every mesh, and PyTorch, begins with the same.
#include <dtrun/dtrun.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace dtrun;

namespace {

constexpr std::int64_t kPixels = 64, kDigits = 10, kHidden = 64, kBatch = 96;
constexpr std::size_t kTrained = 1440;  // of 1797 samples; the others test
const std::string kMade = "made";

struct Options {
  std::vector<int> sizes;
  std::vector<std::string> axes;
  std::string data;  ///< a file, or kMade; empty: what tests/lab/digits has fetched, else made
  int epochs = 20;
  double rate = 0.5;
};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::kUsage, "train_mlp: " + what, "", remedy);
}

/// "dp=2,tp=2".
void read_mesh(const std::string& text, Options& options) {
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string axis = part.substr(0, equals);
    const int size = equals == std::string::npos ? 0 : std::atoi(part.c_str() + equals + 1);
    if ((axis != "dp" && axis != "tp") || size < 1) {
      refuse("--mesh " + text + " is not understood",
             "--mesh dp=2,tp=2: axes dp and tp, sizes from 1");
    }
    options.axes.push_back(axis);
    options.sizes.push_back(size);
  }
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc)
      refuse(name + " lacks its value", "--mesh, --data, --epochs or --rate and a value");
    const std::string value = argv[i + 1];
    if (name == "--mesh") {
      read_mesh(value, options);
    } else if (name == "--data") {
      options.data = value;
    } else if (name == "--epochs") {
      options.epochs = std::atoi(value.c_str());
    } else if (name == "--rate") {
      options.rate = std::atof(value.c_str());
    } else {
      refuse("there is no option " + name, "--mesh, --data, --epochs, --rate");
    }
  }
  return options;
}

/// In [-1, 1): the top of a product that wraps, the same in every language.
double spread(std::int64_t index) {
  const auto bits = static_cast<std::uint32_t>(static_cast<std::uint64_t>(index + 1) * 2654435761U);
  return static_cast<double>(bits) / 2147483648.0 - 1.0;
}

/// A tensor's first numbers, from the formula's index `first` on.
void fill(const Tensor& tensor, std::int64_t inputs, std::int64_t first) {
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = bound * spread(first + static_cast<std::int64_t>(i));
  }
  const NoGrad no_grad;
  tensor.copy_(tensor_from(values, tensor.shape(), DType::f32));
}

/// Samples, one after the other: 64 pixels in [0, 1] and the digit.
struct Samples {
  std::vector<double> pixels;
  std::vector<std::int64_t> digits;
};

/// Lines of 64 pixels, 0 to 16, and the digit, between commas.
Samples read_samples(const std::string& path) {
  std::ifstream file(path);
  if (!file) refuse("cannot read " + path, "tests/lab/digits FILE fetches the set");
  Samples samples;
  for (std::string line; std::getline(file, line);) {
    std::istringstream numbers(line);
    std::vector<double> row;
    for (std::string number; std::getline(numbers, number, ',');) row.push_back(std::stod(number));
    if (row.size() != kPixels + 1) {
      refuse(path + " has a line of " + std::to_string(row.size()) + " numbers",
             "64 pixels and a digit");
    }
    for (std::size_t i = 0; i < kPixels; ++i) samples.pixels.push_back(row[i] / 16);
    samples.digits.push_back(static_cast<std::int64_t>(row[kPixels]));
  }
  if (samples.digits.size() <= kTrained)
    refuse(path + " has too few samples", "1440 and those to test");
  return samples;
}

/// As many, of the same shape: of each digit a picture, and noise.
Samples made_samples() {
  Samples samples;
  for (std::int64_t n = 0; n < 1797; ++n) {
    const std::int64_t digit = n * 7 % kDigits;
    for (std::int64_t i = 0; i < kPixels; ++i) {
      const double picture = 0.5 + 0.5 * spread(5'000'000 + digit * kPixels + i);
      samples.pixels.push_back(0.6 * picture + 0.2 * (1 + spread(9'000'000 + n * kPixels + i)));
    }
    samples.digits.push_back(digit);
  }
  return samples;
}

/// Where tests/lab/digits puts the set; kMade where it has not.
std::string fetched_or_made() {
  const char* const home = std::getenv("HOME");
  const std::string path = std::string(home == nullptr ? "" : home) + "/.cache/dtrun/digits.csv";
  return std::ifstream(path) ? path : kMade;
}

/// Along the axis of that name; all is whole along the others.
Placements along(const DeviceMesh& mesh, const std::string& axis, const Placement& placement) {
  Placements placements;
  for (const std::string& name : mesh.axis_names()) {
    placements.push_back(name == axis ? placement : Replicate());
  }
  return placements;
}

struct Network : nn::Module {
  nn::Linear hidden = register_module("hidden", nn::Linear(kPixels, kHidden));
  nn::Linear output = register_module("output", nn::Linear(kHidden, kDigits));

  explicit Network(const DeviceMesh& mesh) {
    fill(hidden->weight, kPixels, 0);
    fill(hidden->bias, kPixels, 100'000);
    fill(output->weight, kHidden, 200'000);
    fill(output->bias, kHidden, 300'000);
    distribute_module(*this, mesh, {.partition = cut_hidden_layer});
  }
  Tensor forward(const Tensor& pixels) override { return output(relu(hidden(pixels))); }

 private:
  /// Along tp, which costs one sum at its end.
  static void cut_hidden_layer(const std::string& name, nn::Module& layer, const DeviceMesh& mesh) {
    if (name == "hidden") {
      layer.distribute_parameter("weight", mesh, along(mesh, "tp", Shard(0)));
      layer.distribute_parameter("bias", mesh, along(mesh, "tp", Shard(0)));
    } else if (name == "output") {
      layer.distribute_parameter("weight", mesh, along(mesh, "tp", Shard(1)));
    }
  }
};

/// Samples [first, last), cut along dp.
class Batch {
 public:
  Batch(const Samples& samples, std::size_t first, std::size_t last, const DeviceMesh& mesh)
      : digits_(samples.digits.begin() + static_cast<std::ptrdiff_t>(first),
                samples.digits.begin() + static_cast<std::ptrdiff_t>(last)) {
    const std::vector<double> pixels(
        samples.pixels.begin() + static_cast<std::ptrdiff_t>(first * kPixels),
        samples.pixels.begin() + static_cast<std::ptrdiff_t>(last * kPixels));
    const std::int64_t count = static_cast<std::int64_t>(last - first);
    pixels_ = cut(tensor_from(pixels, {count, kPixels}, DType::f32), mesh);
    targets_ = cut(tensor_from(digits_, {count}, DType::i64), mesh);
  }

  Tensor loss(Network& network) const { return cross_entropy(network(pixels_), targets_); }
  double accuracy(Network& network) const {
    const NoGrad no_grad;
    const std::vector<double> scores = network(pixels_).to_vector();
    std::size_t right = 0;
    for (std::size_t i = 0; i < digits_.size(); ++i) {
      const auto first = scores.begin() + static_cast<std::ptrdiff_t>(i * kDigits);
      const auto best = std::max_element(first, first + kDigits);
      if (best - first == digits_[i]) ++right;
    }
    return static_cast<double>(right) / static_cast<double>(digits_.size());
  }

 private:
  static Tensor cut(const Tensor& whole, const DeviceMesh& mesh) {
    return distribute_tensor(whole, mesh, along(mesh, "dp", Shard(0)), {.source_rank = -1});
  }

  std::vector<std::int64_t> digits_;
  Tensor pixels_, targets_;
};

void train(const Options& options, const DeviceMesh& mesh) {
  const bool speaks = dist::get_rank() == 0;
  // What the first rank finds holds for all: else they would learn different sets.
  std::vector<std::string> chosen = {options.data.empty() ? fetched_or_made() : options.data};
  dist::broadcast_object_list(chosen, 0);
  const std::string& data = chosen[0];
  const bool made = data == kMade;
  const Samples samples = made ? made_samples() : read_samples(data);
  if (speaks) print("digits: {}", made ? "made ones (tests/lab/digits fetches real ones)" : data);
  std::vector<Batch> batches;
  for (std::size_t first = 0; first < kTrained; first += kBatch) {
    batches.emplace_back(samples, first, first + kBatch, mesh);
  }
  const Batch test(samples, kTrained, samples.digits.size(), mesh);
  Network network(mesh);
  optim::SGD optimizer(network.parameters(), {.lr = options.rate});
  double loss = 0;
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    loss = 0;
    for (const Batch& batch : batches) {
      const Tensor batch_loss = batch.loss(network);
      batch_loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      loss += batch_loss.item() / static_cast<double>(batches.size());
    }
    const double accuracy = test.accuracy(network);
    if (speaks) print("epoch {:2}  loss {:.6f}  accuracy {:.4f}", epoch, loss, accuracy);
  }
  if (speaks) print("loss: {:.6f}", loss);
}

}  // namespace

int main(int argc, char** argv) {
  Options options = read_options(argc, argv);
  dist::init_process_group();
  if (options.axes.empty()) {
    options.axes = {"dp"};
    options.sizes = {dist::get_world_size()};
  }
  train(options, dist::init_device_mesh("cpu", options.sizes, options.axes));
  dist::destroy_process_group();
}
