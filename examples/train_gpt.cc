// A small GPT learns the bytes of a text, then writes some. The model is written as for one rank;
// the command line says how the ranks share the work.
//
//     dtrun --nproc_per_node=4 train_gpt --mesh dp=2,tp=2 [--data FILE] [--steps 200]...  (--help)
//
// dp     cuts the samples of a batch
// fsdp   cuts them, too, and what is kept of each parameter
// cp     cuts the positions of each sample; attention goes round the ring of ranks
// tp     cuts heads, hidden layers and the bytes that can come next; --sequence on: more
// pp     gives each rank some of the layers
//
// With --checkpoint, FOLDER/step-N has all that the training needs to go on: the same ranks get the
// same losses; on others they agree to about 2e-5. On SIGTERM or SIGUSR1 (--on-signal=TERM=drain)
// they end the step, save, and exit 75.
#include <dtrun/dtrun.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "loss_record.h"

using namespace dtrun;

namespace {

constexpr std::int64_t kBytes = 256;
constexpr int kUsage = 64, kTryLater = 75;  // EX_USAGE, EX_TEMPFAIL
constexpr int kMost = 1 << 30;

using Clock = std::chrono::steady_clock;
const Clock::time_point kStart = Clock::now();

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

volatile std::sig_atomic_t is_asked_to_end = 0;

struct Options {
  std::vector<int> sizes;
  std::vector<std::string> axes;
  std::string data = "/usr/share/common-licenses/GPL-3";
  std::string csv, svg, first_weights, checkpoint, trace;
  std::string sequence = "off", explain = "off", checkpoint_async = "on";
  std::int64_t checkpoint_every = 50, keep = 3;
  std::int64_t steps = 200, batch = 16, accumulate = 1, context = 64, every = 20, sample = 200;
  std::int64_t width = 64, layers = 2, heads = 4, seed = 1, microbatches = 4, stages = 1;
  double rate = 3e-3, clip = 1, dropout = 0;
};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::kUsage, "train_gpt: " + what, "", remedy);
}

/// @return false: the text is not wholly a number, or too small or large a one
template <typename Number>
bool read_number(const std::string& text, Number least, Number most, Number& target) {
  const char* const end = text.data() + text.size();
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || !(number >= least && number <= most)) return false;
  target = number;
  return true;
}

/// "dp=2,tp=2". @return false: it is none
bool read_mesh(const std::string& text, Options& options) {
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string axis = part.substr(0, equals);
    int size = 0;
    const std::vector<std::string> known{"dp", "fsdp", "cp", "tp", "pp"};
    const bool is_new = std::ranges::find(options.axes, axis) == options.axes.end();
    if (equals == std::string::npos || !read_number(part.substr(equals + 1), 1, kMost, size) ||
        std::ranges::find(known, axis) == known.end() || !is_new)
      return false;
    options.axes.push_back(axis);
    options.sizes.push_back(size);
  }
  return true;
}

/// An option of the command line, which has a value.
struct Setting {
  std::string meaning, otherwise;                    ///< its value where it is not given
  std::function<bool(const std::string& text)> set;  ///< false: the text is no value of it
  std::string alone = {};  ///< its value where it stands without one; empty: it needs one
};
using Settings = std::map<std::string, Setting>;

Settings settings_of(Options& options) {
  const auto count = [](std::int64_t& target, std::int64_t least, const std::string& meaning) {
    return Setting{meaning + ", at least " + std::to_string(least), std::to_string(target),
                   [&target, least](const std::string& value) {
                     return read_number<std::int64_t>(value, least, kMost, target);
                   }};
  };
  const auto text = [](std::string& target, const std::string& meaning) {
    const auto set = [&target](const std::string& value) { return target = value, true; };
    return Setting{meaning, target, set};
  };
  const auto on_or_off = [](std::string& target, const std::string& meaning) {
    return Setting{
        "on or off: " + meaning, target,
        [&target](const std::string& value) { return (target = value) == "on" || value == "off"; },
        "on"};
  };
  const auto number = [](double& target, double most, const std::string& meaning) {
    return Setting{meaning + ", a number from 0", std::to_string(target),
                   [&target, most](const std::string& value) {
                     return read_number(value, 0.0, most, target);
                   }};
  };
  return {
      {"--mesh",
       {"dp=2,tp=2: axes dp, fsdp, cp, tp and pp, each once, sizes from 1", "dp, of all ranks",
        [&options](const std::string& value) { return read_mesh(value, options); }}},
      {"--data", text(options.data, "a file: its bytes are learned")},
      {"--csv", text(options.csv, "a file for the loss of each step")},
      {"--svg", text(options.svg, "a file for a picture of the loss")},
      {"--first-weights", text(options.first_weights, "a .safetensors file for the first weights")},
      {"--checkpoint", text(options.checkpoint, "a folder for what is needed to go on")},
      {"--checkpoint-every", count(options.checkpoint_every, 1, "steps from one to the next")},
      {"--checkpoint-async", on_or_off(options.checkpoint_async, "write beside the steps")},
      {"--keep", count(options.keep, 0, "checkpoints that are kept; 0: all")},
      {"--sequence", on_or_off(options.sequence, "tp cuts what lies between layers, too")},
      {"--explain", on_or_off(options.explain, "print the plan of the third step")},
      {"--trace", text(options.trace, "a file for a Perfetto trace of the third step")},
      {"--steps", count(options.steps, 1, "steps of the training")},
      {"--batch", count(options.batch, 1, "samples of a step")},
      {"--accumulate", count(options.accumulate, 1, "parts of a step's samples")},
      {"--context", count(options.context, 2, "bytes of a sample")},
      {"--every", count(options.every, 1, "steps from one line to the next")},
      {"--sample", count(options.sample, 0, "bytes that it writes in the end")},
      {"--width", count(options.width, 1, "numbers of a position")},
      {"--layers", count(options.layers, 1, "layers")},
      {"--heads", count(options.heads, 1, "heads of a layer")},
      {"--seed", count(options.seed, 0, "of all random numbers")},
      {"--microbatches", count(options.microbatches, 1, "parts of a batch in a pipeline")},
      {"--stages", count(options.stages, 1, "stages of a pipeline on each rank")},
      {"--dropout", number(options.dropout, 1, "the share, 1 at most, that is dropped")},
      {"--rate", number(options.rate, 1e38, "the highest learning rate")},
      {"--clip", number(options.clip, 1e38, "the largest norm of a step's gradients")}};
}

std::string help_text(const Settings& settings) {
  std::ostringstream text;
  text << "Usage: dtrun --nproc_per_node=4 train_gpt [OPTION VALUE]...\n"
          "An option that is on or off may stand without a value: on.\n\n";
  for (const auto& [name, setting] : settings) {
    text << "  " << std::left << std::setw(20) << name << setting.meaning;
    text << (setting.otherwise.empty() ? "\n" : " (" + setting.otherwise + ")\n");
  }
  return text.str();
}

/// @return none: help is wanted @throws Error kUsage
std::optional<Options> read_options(int argc, char** argv) {
  Options options;
  const Settings settings = settings_of(options);
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      const char* const rank = std::getenv("RANK");
      if (rank == nullptr || *rank == '0') std::cout << help_text(settings);
      return std::nullopt;
    }
    const auto found = settings.find(name);
    if (found == settings.end()) refuse("there is no option " + name, "train_gpt --help");
    const Setting& setting = found->second;
    const bool is_last = i + 1 == argc;
    const bool may_stand_alone = !setting.alone.empty();
    if (is_last && !may_stand_alone) refuse(name + " lacks its value", setting.meaning);
    const bool stands_alone =
        may_stand_alone && (is_last || std::string(argv[i + 1]).starts_with("--"));
    const std::string value = stands_alone ? setting.alone : argv[++i];
    if (!setting.set(value)) refuse(name + " " + value + " is not understood", setting.meaning);
  }
  if (options.width % options.heads != 0)
    refuse("--width is no multiple of --heads", "as many numbers for each head");
  return options;
}

/// The axes that the user named, and this rank's place along each.
struct Ranks {
  explicit Ranks(const Options& options)
      : mesh(dist::init_device_mesh("cpu", options.sizes, options.axes)) {}
  bool have(const std::string& axis) const {
    return std::ranges::find(mesh.axis_names(), axis) != mesh.axis_names().end();
  }
  int along(const std::string& axis) const { return have(axis) ? mesh.size(axis) : 1; }
  int place(const std::string& axis) const { return have(axis) ? mesh.local_rank(axis) : 0; }
  /// Those of the axes that there are, as one.
  std::optional<DeviceMesh> joined(const std::vector<std::string>& axes) const {
    std::vector<std::string> found;
    for (const std::string& axis : axes) {
      if (have(axis)) found.push_back(axis);
    }
    if (found.empty()) return std::nullopt;
    return found.size() == 1 ? mesh[found[0]] : mesh.flatten(found);
  }
  /// Samples are cut along dp and fsdp.
  int sample_parts() const { return along("dp") * along("fsdp"); }
  int sample_part() const { return place("dp") * along("fsdp") + place("fsdp"); }

  const DeviceMesh mesh;
};

struct Embeddings : nn::Module {
  Embeddings(const Options& options, Tensor its_positions)
      : positions(std::move(its_positions)),
        bytes(register_module("bytes", nn::Embedding(kBytes, options.width))),
        places(register_module("places", nn::Embedding(options.context, options.width))),
        dropout(register_module("dropout", nn::Dropout(options.dropout))) {
    nn::init::normal_(bytes->weight, 0, 0.02);
    nn::init::normal_(places->weight, 0, 0.02);
  }
  Tensor forward(const Tensor& text) override { return dropout(bytes(text) + places(positions)); }

  const Tensor positions;  ///< of this rank's part of each sample
  nn::Embedding bytes, places;
  nn::Dropout dropout;
};

struct Attention : nn::Module {
  explicit Attention(const Options& options) : each(options.width / options.heads) {
    for (nn::Linear* const layer : {&query, &key, &value, &output})
      *layer = nn::Linear(options.width, options.width);
    query = register_module("query", query);
    key = register_module("key", key);
    value = register_module("value", value);
    output = register_module("output", output);
  }
  Tensor forward(const Tensor& x) override {
    // As many heads as there are columns for.
    const auto split = [&](const Tensor& all) {
      return unflatten(all, -1, {all.size(-1) / each, each}).transpose(1, 2);
    };
    const Tensor mixed = scaled_dot_product_attention(split(query(x)), split(key(x)),
                                                      split(value(x)), {.is_causal = true});
    return output(flatten(mixed.transpose(1, 2), 2));
  }
  const std::int64_t each;
  nn::Linear query{1, 1}, key{1, 1}, value{1, 1}, output{1, 1};
};

struct Block : nn::Module {
  explicit Block(const Options& options)
      : attention_norm(register_module("attention_norm", nn::LayerNorm(options.width))),
        attention(register_module("attention", nn::ModuleHolder<Attention>(options))),
        norm(register_module("norm", nn::LayerNorm(options.width))),
        up(register_module("up", nn::Linear(options.width, 4 * options.width))),
        down(register_module("down", nn::Linear(4 * options.width, options.width))),
        dropout(register_module("dropout", nn::Dropout(options.dropout))) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + dropout(attention(attention_norm(x)));
    return y + dropout(down(gelu(up(norm(y)))));
  }
  nn::LayerNorm attention_norm;
  nn::ModuleHolder<Attention> attention;
  nn::LayerNorm norm;
  nn::Linear up, down;
  nn::Dropout dropout;
};

struct Head : nn::Module {
  explicit Head(const Options& options)
      : norm(register_module("norm", nn::LayerNorm(options.width))),
        scores(register_module("scores", nn::Linear(options.width, kBytes, {.bias = false}))) {}
  Tensor forward(const Tensor& x) override { return scores(norm(x)); }
  nn::LayerNorm norm;
  nn::Linear scores;
};

/// [samples, context] to the scores of the byte that comes next, [samples, context, 256].
nn::Sequential made_gpt(const Options& options, const Ranks& ranks) {
  const Tensor positions = ranks.have("cp") ? context_positions(ranks.mesh["cp"], options.context)
                                            : arange(options.context);
  nn::Sequential gpt;
  gpt->push_back(nn::ModuleHolder<Embeddings>(options, positions));
  for (std::int64_t i = 0; i < options.layers; ++i)
    gpt->push_back(nn::ModuleHolder<Block>(options));
  gpt->push_back(nn::ModuleHolder<Head>(options));
  if (!options.first_weights.empty() && dist::get_rank() == 0)
    nn::save_safetensors(options.first_weights, gpt->state_dict());
  return gpt;
}

/// Columns of what goes into heads and hidden layers, rows of what comes out of them: one sum at
/// the end of each. With --sequence on, what lies between is cut along the sequence.
dtensor::ParallelPlan tensor_plan(const Options& options, int ranks) {
  const bool cuts_sequence = options.sequence == "on";
  const Placement between = cuts_sequence ? Placement(Shard(1)) : Placement(Replicate());
  // Where ranks have no whole heads, tensors of the mesh find them.
  const dtensor::Result heads =
      options.heads % ranks == 0 ? dtensor::Result::local : dtensor::Result::distributed;
  dtensor::ParallelPlan plan;
  for (const char* const name : {"*.attention.query", "*.attention.key", "*.attention.value"})
    plan.emplace_back(name, Colwise({.input = between, .result = heads}));
  plan.emplace_back("*.up", Colwise({.input = between}));
  for (const char* const name : {"*.attention.output", "*.down"})
    plan.emplace_back(name, Rowwise({.output = between}));
  plan.emplace_back("*.scores",
                    Colwise({.input = between, .result = dtensor::Result::distributed}));
  if (cuts_sequence) {
    for (const char* name : {"*.attention_norm", "*.norm"}) plan.emplace_back(name, Sequence());
    plan.emplace_back("0", PrepareOutput({.given = {Replicate()}, .wanted = {Shard(1)}}));
    // That of the embeddings sees whole sequences.
    for (std::int64_t layer = 1; options.dropout > 0 && layer <= options.layers; ++layer)
      plan.emplace_back(std::to_string(layer) + ".dropout", Sequence());
  }
  return plan;
}

/// Samples, and what comes next at each place of them.
using Windows = std::pair<Tensor, Tensor>;

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
  Windows windows(Part part, std::uint64_t number) const {
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

/// The model as this rank has it, and what is done with it.
class Learner {
 public:
  Learner(const Options& options, const Ranks& ranks)
      : ranks_(ranks), layers_(made_gpt(options, ranks)), model_(layers_) {
    const DeviceMesh& mesh = ranks.mesh;
    if (ranks.have("tp"))
      parallelize(*layers_, mesh["tp"], tensor_plan(options, ranks.along("tp")));
    if (ranks.have("cp")) context_parallel(*layers_, mesh["cp"]);
    const bool cuts_parameters = ranks.have("fsdp");
    const std::optional<DeviceMesh> copies = ranks.joined({"dp", "cp"});
    if (ranks.have("pp")) {
      pipeline_.emplace(layers_, mesh["pp"],
                        PipelineOptions{.microbatches = static_cast<int>(options.microbatches) *
                                                        static_cast<int>(options.accumulate),
                                        .accumulated = static_cast<int>(options.accumulate),
                                        .stages_per_rank = static_cast<int>(options.stages),
                                        .loss = loss_of,
                                        .data_parallel = cuts_parameters ? std::nullopt : copies});
      model_ = pipeline_->model();
    }
    if (cuts_parameters) {
      const DeviceMesh parts =
          copies ? DeviceMesh::concatenate({*copies, mesh["fsdp"]}) : mesh["fsdp"];
      if (pipeline_) {
        for (const auto& stage : pipeline_->stages()) fully_shard(*stage, parts, {.units = {"*"}});
      } else {
        fully_shard(*layers_, parts, {.units = {"*"}});
      }
    } else if (copies && !pipeline_) {
      data_parallel_ = data_parallel(*layers_, *copies);
    }
  }

  /// Forward and backward of what is accumulated. @return this rank's loss
  Tensor learn(const std::vector<Windows>& batches) {
    model_->train();
    if (pipeline_) {
      Tensors samples, next;
      for (const Windows& batch : batches) {
        samples.push_back(own(batch.first));
        next.push_back(own(batch.second));
      }
      return pipeline_->step(cat(samples), cat(next));
    }
    Tensor loss = zeros({});
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const auto pass = [&] {
        const Tensor part = loss_of(layers_(own(batches[i].first)), own(batches[i].second)) *
                            (1.0 / static_cast<double>(batches.size()));
        part.backward();
        loss = loss + part.detach();
      };
      if (data_parallel_ && i + 1 < batches.size()) {
        const auto paused = data_parallel_->no_sync();
        pass();
      } else {
        pass();
      }
    }
    return loss;
  }
  double mean_over_ranks(const Tensor& loss) const {
    const Tensor mean = loss.detach().to(DType::f64).clone();
    if (const auto data = ranks_.joined({"dp", "fsdp", "cp"}))
      data->group(0).all_reduce(mean.local(), ReduceOp::avg);
    return mean.item();
  }
  double loss(const Windows& batch) {
    const NoGrad no_grad;
    model_->eval();
    const Tensor samples = own(batch.first), next = own(batch.second);
    return mean_over_ranks(pipeline_ ? pipeline_->evaluate(samples, next)
                                     : loss_of(layers_(samples), next));
  }
  /// Of one text, the same on all ranks: [1, context] to [1, context, 256].
  Tensor scores(const Tensor& text) {
    const NoGrad no_grad;
    model_->eval();
    const Tensor part = ranks_.have("cp") ? context_shard(text, ranks_.mesh["cp"], 1) : text;
    const Tensor found = pipeline_ ? pipeline_->forward(part) : layers_(part);
    const Tensor whole = found.is_distributed() ? found.full_tensor() : found;
    return ranks_.have("cp") ? context_unshard(whole, ranks_.mesh["cp"], 1) : whole;
  }
  double clip(double most) const {
    optim::ClipGradNormOptions options;
    if (pipeline_) options.stages = ranks_.mesh["pp"];
    return optim::clip_grad_norm_(model_->parameters(), most, options).item();
  }
  nn::Module& model() const { return *model_; }

 private:
  static Tensor loss_of(const Tensor& scores, const Tensor& next) {
    const Tensor rows = flatten(scores, 0, 1);
    return scores.is_distributed() ? loss_parallel(rows, flatten(next))
                                   : cross_entropy(rows, flatten(next));
  }
  /// This rank's samples, and of each this rank's positions.
  Tensor own(const Tensor& batch) const {
    const std::int64_t count = batch.size(0) / ranks_.sample_parts();
    const Tensor samples = batch.narrow(0, ranks_.sample_part() * count, count);
    return ranks_.have("cp") ? context_shard(samples, ranks_.mesh["cp"], 1) : samples;
  }

  const Ranks& ranks_;
  const nn::Sequential layers_;
  std::optional<Pipeline> pipeline_;
  nn::Sequential model_;  ///< of the layers, those of this rank
  std::optional<DataParallel> data_parallel_;
};

class Training {
 public:
  explicit Training(const Options& options)
      : options_(options),
        text_(options),
        ranks_(options),
        learner_(options, ranks_),
        optimizer_(learner_.model().parameters(), {.lr = options.rate, .weight_decay = 0.1}),
        schedule_(optimizer_, std::max<std::int64_t>(1, options.steps / 10), options.steps + 1,
                  0.1),
        series_(options.checkpoint, {.keep = static_cast<int>(options.keep)}),
        state_{{"model", learner_.model()},     {"optimizer", optimizer_}, {"schedule", schedule_},
               {"random", dcp::ThreadRandom()}, {"step", step_},           {"loss", loss_}},
        speaks_(dist::get_rank() == 0) {
    const int parts = ranks_.sample_parts();
    if (options.batch % parts != 0)
      refuse("a batch of " + std::to_string(options.batch) + " samples for " +
                 std::to_string(parts) + " ranks",
             "--batch: a multiple of the ranks of dp and fsdp");
    if (options.sequence == "on" && options.context / ranks_.along("cp") % ranks_.along("tp") != 0)
      refuse("a context of " + std::to_string(options.context) + " with --sequence on",
             "--context: a multiple of the ranks of cp and tp");
    manual_seed(static_cast<std::uint64_t>(options.seed + 1));  // dropout's
    if (!options.checkpoint.empty()) {
      for (const int sent : {SIGTERM, SIGUSR1}) std::signal(sent, [](int) { is_asked_to_end = 1; });
      if (options.checkpoint_async == "on") {
        const auto& worker = dist::current_worker();
        saver_.emplace(worker.store(), worker.rank(), worker.world_size());
      }
      series_.check_folder();
      goes_on_ = series_.load_last(state_).has_value();
      if (goes_on_ && speaks_) print("goes on after step {} of {}", step_, series_.path(step_));
    }
    if (speaks_) record_.emplace(options.csv, options.svg, step_);
  }

  /// @return false: it was asked to end before, and has saved what it had
  bool run() {
    const auto start = Clock::now();
    const std::int64_t before = step_;
    while (step_ < options_.steps) {
      const double rate = optimizer_.lr();
      ++step_;
      loss_ = step_ == before + std::min<std::int64_t>(3, options_.steps - before)
                  ? watched_step(step_)
                  : one_step(step_);
      if (goes_on_ && speaks_ && step_ == before + 1)
        print("took its next step {:.2f} s after it was started", seconds_since(kStart));
      if (record_) record_->add(step_, loss_);
      const bool is_last = step_ == options_.steps;
      const bool keeps = !options_.checkpoint.empty(), ends = keeps && !is_last && is_asked();
      if (keeps && (ends || is_last || step_ % options_.checkpoint_every == 0)) save();
      if (saver_ && (ends || is_last)) saver_->wait();
      if (ends) {
        if (speaks_) print("was asked to end, and has saved step {}", step_);
        return false;
      }
      if (step_ % options_.every != 0 && !is_last) continue;
      const double kept_back = learner_.loss(text_.windows(Text::Part::kept_back, 0));
      const double seconds = seconds_since(start);
      const auto done = static_cast<double>(step_ - before);
      const double each =
          static_cast<double>(options_.batch * options_.accumulate * options_.context);
      if (speaks_) {
        print(
            "step {:4}  loss {:.4f}  validation {:.4f}  rate {:.5f}  {:.0f} bytes/s  {:.0f} s left",
            step_, loss_, kept_back, rate, each * done / seconds,
            seconds / done * static_cast<double>(options_.steps - step_));
      }
    }
    if (record_) record_->flush();
    if (options_.sample > 0) write_text();
    if (record_) record_->draw();
    if (speaks_) print("loss: {:.6f}", loss_);
    return true;
  }

 private:
  /// The lines first: who goes on after this step has them.
  void save() {
    if (record_) record_->flush();
    if (!saver_) return static_cast<void>(series_.save(step_, state_));
    series_.async_save(step_, state_, *saver_, dcp::Staging::in_background);
  }
  /// Whether any rank was: the signal does not reach all in the same step.
  static bool is_asked() {
    const Tensor asked = full({}, static_cast<double>(is_asked_to_end), {});
    dist::all_reduce(asked, ReduceOp::max);
    return asked.item() > 0;
  }
  std::vector<Windows> batches_of(std::int64_t step) const {
    std::vector<Windows> batches;
    for (std::int64_t part = 0; part < options_.accumulate; ++part) {
      const auto number = static_cast<std::uint64_t>(step * options_.accumulate + part);
      batches.push_back(text_.windows(Text::Part::trained, number));
    }
    return batches;
  }
  double one_step(std::int64_t step) {
    const double loss = learner_.mean_over_ranks(learner_.learn(batches_of(step)));
    if (!std::isfinite(loss)) refuse_loss(step);
    learner_.clip(options_.clip);
    if (saver_) saver_->wait_staged();
    optimizer_.step();
    optimizer_.zero_grad();
    schedule_.step();
    return loss;
  }
  /// What --explain and --trace tell of: gradients and units have found their order by then.
  double watched_step(std::int64_t step) {
    const bool explains = options_.explain == "on";
    std::optional<StepMemory> predicted;
    if (explains) {
      predicted = predict_step(learner_.model(), optimizer_,
                               [&] { static_cast<void>(learner_.learn(batches_of(step))); });
    }
    std::optional<Trace> trace;
    if (!options_.trace.empty()) trace.emplace();
    double loss = 0;
    const auto take = [&] { loss = one_step(step); };
    if (explains) {
      const auto plan = explain_step(learner_.model(), optimizer_, take, predicted);
      if (speaks_) print("{}", plan.to_string());
    } else {
      take();
    }
    if (!trace) return loss;
    trace->write(options_.trace, ranks_.mesh.group());
    if (speaks_)
      print("trace: {:.0f} % of rank 0's communication hidden", 100 * trace->hidden_share());
    return loss;
  }
  [[noreturn]] void refuse_loss(std::int64_t step) const {
    std::string culprit = "all parameters and gradients are finite";
    try {
      optim::check_finite(learner_.model(), step, ranks_.mesh);
    } catch (const Error& error) {
      culprit = error.summary() + ", " + error.why();
    }
    refuse("the loss of step " + std::to_string(step) + " is no number; " + culprit,
           "a lower --rate");
  }
  /// A byte at a time, by chance; every rank draws the same ones.
  void write_text() {
    std::mt19937_64 random(static_cast<std::uint64_t>(options_.seed));
    std::string written = text_.beginning();
    for (std::int64_t i = 0; i < options_.sample; ++i) {
      const auto length = std::min(written.size(), static_cast<std::size_t>(options_.context));
      // What comes behind is not seen.
      std::vector<std::int64_t> last(static_cast<std::size_t>(options_.context), 0);
      for (std::size_t k = 0; k < length; ++k)
        last[k] = static_cast<unsigned char>(written[written.size() - length + k]);
      const Tensor all = learner_.scores(tensor_from(last, {1, options_.context}, DType::i64));
      std::vector<double> weights =
          all.select(1, static_cast<std::int64_t>(length) - 1).to_vector();
      const double most = *std::ranges::max_element(weights);
      for (double& weight : weights) weight = std::exp((weight - most) / 0.7);
      written += static_cast<char>(
          std::discrete_distribution<int>(weights.begin(), weights.end())(random));
    }
    if (speaks_) print("{}", written);
  }

  const Options& options_;
  const Text text_;
  const Ranks ranks_;
  Learner learner_;
  optim::AdamW optimizer_;
  optim::WarmupCosineLR schedule_;
  std::int64_t step_ = 0;  ///< the last one that was taken
  double loss_ = 0;        ///< its
  dcp::Series series_;
  std::optional<dcp::AsyncSaver> saver_;  ///< with --checkpoint-async on
  bool goes_on_ = false;                  ///< after steps of an earlier start
  const dcp::State state_;
  const bool speaks_;
  std::optional<LossRecord> record_;  ///< of rank 0
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  try {
    const std::optional<Options> read = read_options(argc, argv);
    if (!read) return 0;
    options = *read;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return kUsage;
  }
  dist::init_process_group();
  if (options.axes.empty()) {
    options.axes = {"dp"};
    options.sizes = {dist::get_world_size()};
  }
  manual_seed(static_cast<std::uint64_t>(options.seed));
  const bool is_done = Training(options).run();
  dist::destroy_process_group();
  return is_done ? 0 : kTryLater;
}
