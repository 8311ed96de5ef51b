// The C++ interface as a libtorch program uses it.
#include <gtest/gtest.h>
#include <sinter/sinter.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <string>

namespace {

// Two modules that share one weight, as a language model's ends do.
struct TiedImpl : torch::nn::Module {
  torch::nn::Embedding in{nullptr};
  torch::Tensor out;
  torch::nn::BatchNorm1d norm{nullptr};
  TiedImpl() {
    in = register_module("in", torch::nn::Embedding(8, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    out = register_parameter("out", in->weight);
  }
  torch::Tensor forward(const torch::Tensor& symbols) { return at::linear(norm(in(symbols)), out); }
};
TORCH_MODULE(Tied);

torch::Tensor symbols() { return torch::arange(8); }

torch::Tensor loss_of(Tied& model, const torch::Tensor& x) { return torch::nn::functional::cross_entropy(model(x), x); }

TEST(Api, IsAvailable) {
  EXPECT_TRUE(sinter::is_available());
  EXPECT_EQ(sinter::device().str(), "sinter:0");
  EXPECT_FALSE(std::string(sinter::version()).empty());
}

TEST(Api, ToKeepsParametersAndTies) {
  Tied model;
  c10::TensorImpl* const weight = model->in->weight.unsafeGetTensorImpl();
  sinter::to(*model);
  EXPECT_EQ(model->in->weight.unsafeGetTensorImpl(), weight);
  EXPECT_EQ(model->out.unsafeGetTensorImpl(), weight);
  for (const torch::Tensor& parameter : model->parameters()) {
    EXPECT_EQ(parameter.device(), sinter::device());
    EXPECT_TRUE(parameter.requires_grad());
    EXPECT_TRUE(parameter.is_leaf());
  }
  for (const torch::Tensor& buffer : model->buffers()) EXPECT_EQ(buffer.device(), sinter::device());
}

TEST(Api, ToMovesGradientsBothWays) {
  Tied model;
  loss_of(model, symbols()).backward();
  const torch::Tensor before = model->out.grad().clone();
  sinter::to(*model);
  EXPECT_EQ(model->out.grad().device(), sinter::device());
  // A backward on the device adds to a gradient that was made on the CPU: the accumulator is the device's now.
  loss_of(model, symbols().to(sinter::device())).backward();
  sinter::to(*model, torch::kCPU);
  EXPECT_TRUE(model->out.device().is_cpu());
  EXPECT_TRUE(torch::allclose(model->out.grad(), 2 * before));
}

TEST(Api, AnOptimizerMadeBeforeTrainsWhatWasMoved) {
  torch::manual_seed(1);
  Tied model, reference;
  {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < model->parameters().size(); ++i) reference->parameters()[i].copy_(model->parameters()[i]);
  }
  torch::optim::SGD optimizer({model->in->weight}, 0.5), expected({reference->in->weight}, 0.5);
  sinter::to(*model);
  const torch::Tensor x = symbols().to(sinter::device());
  for (int step = 0; step < 5; ++step) {
    const torch::Tensor loss = loss_of(model, x), wanted = loss_of(reference, symbols());
    loss.backward();
    wanted.backward();
    optimizer.step();
    optimizer.zero_grad();
    sinter::end_graph();
    expected.step();
    expected.zero_grad();
    EXPECT_EQ(loss.item<float>(), wanted.item<float>());
  }
  EXPECT_TRUE(torch::equal(model->in->weight.cpu(), reference->in->weight));
  EXPECT_TRUE(torch::equal(model->norm->running_var.cpu(), reference->norm->running_var));
}

TEST(Api, EndGraphRunsWhatWasRecorded) {
  const torch::Tensor x = torch::ones({3}, sinter::device()) + 1;
  const int64_t before = sinter::compiles();
  sinter::end_graph();
  EXPECT_EQ(sinter::compiles(), before + 1);
  sinter::end_graph();  // nothing is open
  EXPECT_EQ(sinter::compiles(), before + 1);
  EXPECT_EQ(x.sum().item<float>(), 6);
}

TEST(Api, SeedsGiveTheSameNumbersAgain) {
  const auto draw = [] { return torch::rand({5}, sinter::device()).cpu(); };
  sinter::manual_seed(7);
  const torch::Tensor first = draw(), next = draw();
  sinter::manual_seed(7);
  EXPECT_TRUE(torch::equal(draw(), first));
  EXPECT_FALSE(torch::equal(first, next));
  torch::manual_seed(7);
  EXPECT_TRUE(torch::equal(draw(), first));
}

TEST(Api, MemoryIsCounted) {
  sinter::sync();
  const int64_t before = sinter::memory_stats().allocated;
  sinter::reset_peak_memory_stats();
  {
    const torch::Tensor x = torch::zeros({1 << 20}, sinter::device());
    sinter::sync();
    EXPECT_GE(sinter::memory_stats().allocated, before + (4 << 20));
  }
  EXPECT_LT(sinter::memory_stats().allocated, before + (4 << 20));
  EXPECT_GE(sinter::memory_stats().peak_allocated, before + (4 << 20));
  sinter::empty_cache();
  EXPECT_LE(sinter::memory_stats().reserved, sinter::memory_stats().peak_reserved);
}

TEST(Api, MetricsAreJson) {
  sinter::reset_metrics();
  (torch::ones({2}, sinter::device()) * 3).cpu();
  const std::string text = sinter::metrics_json();
  EXPECT_EQ(text.front(), '{');
  EXPECT_NE(text.find("\"ops_recorded\""), std::string::npos);
}

TEST(Api, ErrorsAreTorchErrors) {
  const torch::Tensor a = torch::ones({2, 3}, sinter::device());
  EXPECT_THROW(torch::mm(a, a), c10::Error);
}

}  // namespace
