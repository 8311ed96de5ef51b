// Trains a character-level transformer in C++: libtorch and the sinter device, no Python.
//
//   train_text [--device sinter|cpu] [--steps N] [--text FILE_OR_FOLDER] [--save FILE]
//
// The text is libtorch's own headers unless another is named. After training, the model is saved, loaded into a fresh
// one on the same device, and must give the same loss on text that was kept out of the training.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <sinter/sinter.h>
#include <torch/torch.h>
#include <torch/version.h>

namespace {

namespace F = torch::nn::functional;

constexpr int64_t kContext = 64;
constexpr int64_t kBatch = 16;
constexpr int64_t kWidth = 96;
constexpr int64_t kHeads = 4;
constexpr int64_t kLayers = 2;
constexpr int64_t kSymbols = 96;  // newline and printable ASCII

struct Options {
  std::string device = "sinter";
  int64_t steps = 150;
  std::string text = DEFAULT_TEXT;
  std::string save = "train_text.pt";
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--device") {
      options.device = value;
    } else if (name == "--steps") {
      options.steps = std::stoll(value);
    } else if (name == "--text") {
      options.text = value;
    } else if (name == "--save") {
      options.save = value;
    } else {
      throw std::invalid_argument("unknown option " + name);
    }
  }
  return options;
}

torch::Tensor read_text(const std::filesystem::path& where) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(where)) {
    for (const auto& entry : std::filesystem::directory_iterator(where)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());  // a folder's own order differs between machines
  } else {
    files.push_back(where);
  }
  std::vector<int64_t> symbols;
  for (const auto& file : files) {
    std::ifstream stream(file);
    for (auto c = std::istreambuf_iterator<char>(stream); c != std::istreambuf_iterator<char>(); ++c) {
      if (*c == '\n') symbols.push_back(0);
      if (*c >= 32 && *c < 127) symbols.push_back(*c - 31);
    }
  }
  TORCH_CHECK(symbols.size() > 20 * kContext, "no text to train on in ", where.string());
  return torch::tensor(symbols);
}

struct Batch {
  torch::Tensor symbols, targets;
};

// Windows of the text and the same windows one symbol later. The seed picks them, the same on every device.
Batch sample(const torch::Tensor& text, uint64_t seed, torch::Device device) {
  auto generator = at::detail::createCPUGenerator(seed);
  const auto starts = torch::randint(0, text.size(0) - kContext - 1, {kBatch}, generator, torch::kLong);
  const auto windows = text.index({starts.unsqueeze(1) + torch::arange(kContext + 1)});
  return {windows.slice(1, 0, kContext).contiguous().to(device), windows.slice(1, 1).contiguous().to(device)};
}

struct BlockImpl : torch::nn::Module {
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};

  BlockImpl() {
    const torch::nn::LayerNormOptions norm({kWidth});
    norm1 = register_module("norm1", torch::nn::LayerNorm(norm));
    norm2 = register_module("norm2", torch::nn::LayerNorm(norm));
    qkv = register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth));
    out = register_module("out", torch::nn::Linear(kWidth, kWidth));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
  }

  torch::Tensor forward(torch::Tensor x) {
    const int64_t batch = x.size(0), length = x.size(1);
    const auto parts = qkv(norm1(x)).view({batch, length, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const auto attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, /*dropout_p=*/0.0, /*is_causal=*/true);
    x = x + out(attended.transpose(1, 2).reshape({batch, length, kWidth}));
    return x + down(F::gelu(up(norm2(x))));
  }
};
TORCH_MODULE(Block);

struct LanguageModelImpl : torch::nn::Module {
  torch::nn::Embedding symbol{nullptr};
  torch::Tensor position;
  torch::nn::Sequential blocks{nullptr};
  torch::nn::LayerNorm norm{nullptr};

  LanguageModelImpl() {
    symbol = register_module("symbol", torch::nn::Embedding(kSymbols, kWidth));
    position = register_parameter("position", 0.1 * torch::randn({kContext, kWidth}));
    blocks = register_module("blocks", torch::nn::Sequential());
    for (int64_t i = 0; i < kLayers; ++i) blocks->push_back(Block());
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    torch::NoGradGuard no_grad;
    symbol->weight.mul_(0.1);
  }

  torch::Tensor forward(const torch::Tensor& symbols) {
    const auto x = symbol(symbols) + position.slice(0, 0, symbols.size(1));
    return F::linear(norm(blocks->forward(x)), symbol->weight);  // one weight at both ends
  }
};
TORCH_MODULE(LanguageModel);

torch::Tensor loss_of(LanguageModel& model, const Batch& batch) {
  return F::cross_entropy(model(batch.symbols).flatten(0, 1), batch.targets.flatten());
}

double held_out_loss(LanguageModel& model, const torch::Tensor& text, torch::Device device) {
  torch::NoGradGuard no_grad;
  double sum = 0;
  constexpr int kBatches = 4;
  for (int i = 0; i < kBatches; ++i) sum += loss_of(model, sample(text, 1'000'000 + i, device)).item<double>();
  return sum / kBatches;
}

int run(const Options& options) {
  const torch::Device device = options.device == "sinter" ? sinter::device() : torch::Device(options.device);
  const auto text = read_text(options.text);
  const auto kept_out = text.slice(0, 0, text.size(0) / 10);
  const auto training = text.slice(0, text.size(0) / 10);
  std::printf("sinter %s, libtorch %s, device %s, %lld characters\n", sinter::version(), TORCH_VERSION,
              options.device.c_str(), static_cast<long long>(text.size(0)));

  torch::manual_seed(0);
  LanguageModel model;
  sinter::to(*model, device);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(2e-3));

  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < options.steps; ++step) {
    const auto loss = loss_of(model, sample(training, step, device));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    if (device.is_privateuseone()) sinter::end_graph();
    if (step % 10 == 0 || step + 1 == options.steps) {
      std::printf("step %lld loss %.9g\n", static_cast<long long>(step), loss.item<double>());
    }
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("%.2f ms a step\n", took.count() / static_cast<double>(options.steps));

  const double trained = held_out_loss(model, kept_out, device);
  torch::save(model, options.save);
  LanguageModel loaded;
  torch::load(loaded, options.save);
  sinter::to(*loaded, device);
  const double reloaded = held_out_loss(loaded, kept_out, device);
  std::printf("held-out loss %.9g, after save and load %.9g\n", trained, reloaded);
  if (device.is_privateuseone()) {
    const auto memory = sinter::memory_stats();
    std::printf("device memory: peak %.1f MiB, graphs planned: %lld\n",
                static_cast<double>(memory.peak_allocated) / (1 << 20), static_cast<long long>(sinter::compiles()));
  }
  return trained == reloaded ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_text: %s\n", error.what());
    return 2;
  }
}
