// Functions of libtorch that its Rust bindings lack. To compile this file, the headers of a libtorch for CPUs are enough, also for use on
// GPUs: libtorch chooses the kernels by the device of the tensors.
//
// A tensor is passed as an `at::Tensor*`, as the Rust bindings do. If libtorch throws, a function writes the message to `error`, which has
// room for `ERROR_LENGTH` bytes.

#include <ATen/Functions.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

constexpr size_t ERROR_LENGTH = 2048;

template <typename F> void guarded(char *error, F &&f) {
  try {
    f();
  } catch (const std::exception &e) {
    std::strncpy(error, *e.what() ? e.what() : "without a reason", ERROR_LENGTH - 1);
  } catch (...) {
    std::strncpy(error, "without a reason", ERROR_LENGTH - 1);
  }
}

// A range of `n_q` queries, and the range of `n_k` keys that they attend to. If `causal`, each query attends to the keys up to its own.
struct Part {
  int64_t q, n_q, k, n_k, causal;
};

struct Flash {
  Tensor out, lse, seed, offset;
};

Flash flash(const Tensor &q, const Tensor &k, const Tensor &v, bool causal) {
  if (q.is_cuda()) {
    auto all = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, false);
    return {std::get<0>(all), std::get<1>(all), std::get<6>(all), std::get<7>(all)};
  }
  auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal);
  return {out, lse, {}, {}};
}

// The gradients of one part. `whole` has the output and the log-sum-exps of all parts together, so that these are the part's shares.
std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor &grad, const Tensor &q, const Tensor &k, const Tensor &v,
                                                  const Flash &whole, bool causal) {
  if (q.is_cuda()) {
    return at::_scaled_dot_product_flash_attention_backward(grad, q, k, v, whole.out, whole.lse, {}, {}, q.size(2), k.size(2), 0.0,
                                                            causal, whole.seed, whole.offset);
  }
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, whole.out, whole.lse, 0.0, causal);
}

// Attention in parts that are joined by their log-sum-exps (FlashAttention, https://arxiv.org/abs/2205.14135, section 3.1).
struct InParts : public torch::autograd::Function<InParts> {
  static Tensor forward(AutogradContext *ctx, const Tensor &q, const Tensor &k, const Tensor &v, std::vector<Part> parts) {
    auto out = at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options()).transpose(1, 2);
    auto lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    Flash last;
    for (size_t i = 0; i < parts.size();) {
      auto first = parts[i];
      auto own = q.narrow(2, first.q, first.n_q);
      std::vector<Tensor> outs, lses;
      for (; i < parts.size() && parts[i].q == first.q; i++) {
        auto keys = [&](const Tensor &x) { return x.narrow(2, parts[i].k, parts[i].n_k); };
        last = flash(own, keys(k), keys(v), parts[i].causal);
        outs.push_back(last.out);
        lses.push_back(last.lse);
      }
      auto joined = last.out, sum = last.lse;
      if (outs.size() > 1) {
        auto all = at::stack(lses);
        sum = all.logsumexp(0);
        joined = at::mul(at::stack(outs), all.sub(sum).exp().unsqueeze(-1)).sum(0);
      }
      out.narrow(2, first.q, first.n_q).copy_(joined);
      lse.narrow(2, first.q, first.n_q).copy_(sum);
    }
    ctx->save_for_backward({q, k, v, out, lse, last.seed, last.offset});
    std::vector<int64_t> flat;
    for (auto &part : parts) flat.insert(flat.end(), {part.q, part.n_q, part.k, part.n_k, part.causal});
    ctx->saved_data["parts"] = flat;
    return out;
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    auto &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &lse = saved[4];
    auto grad = grads[0].stride(-1) == 1 ? grads[0] : grads[0].contiguous();
    auto zeros = [](const Tensor &x) { return at::zeros(x.sizes(), x.options().dtype(at::kFloat)); };
    auto grad_q = zeros(q), grad_k = zeros(k), grad_v = zeros(v);
    auto flat = ctx->saved_data["parts"].toIntVector();
    for (size_t i = 0; i < flat.size(); i += 5) {
      Part part{flat[i], flat[i + 1], flat[i + 2], flat[i + 3], flat[i + 4]};
      auto own = [&](const Tensor &x) { return x.narrow(2, part.q, part.n_q); };
      auto keys = [&](const Tensor &x) { return x.narrow(2, part.k, part.n_k); };
      Flash whole{own(out), own(lse).contiguous(), saved[5], saved[6]};
      auto [by_q, by_k, by_v] = flash_backward(own(grad), own(q), keys(k), keys(v), whole, part.causal);
      own(grad_q).add_(by_q);
      keys(grad_k).add_(by_k);
      keys(grad_v).add_(by_v);
    }
    return {grad_q.to(q.scalar_type()), grad_k.to(k.scalar_type()), grad_v.to(v.scalar_type()), Tensor()};
  }
};

// The same as the GPU's kernel for several sequences, computed one sequence after the other with masks.
Tensor of_sequences(const Tensor &q, const Tensor &k, const Tensor &v, const std::vector<Tensor> &where, int64_t window) {
  auto at = [](const Tensor &numbers, int64_t i) { return numbers[i].item<int64_t>(); };
  std::vector<Tensor> outs;
  for (int64_t i = 0; i < where[2].size(0); i++) {
    auto first = at(where[0], i), n = at(where[0], i + 1) - first, used = at(where[2], i);
    auto heads = [&](const Tensor &x, int64_t start, int64_t n) { return x.narrow(0, start, n).transpose(0, 1).unsqueeze(0); };
    auto keys = [&](const Tensor &x) { return heads(x, at(where[1], i), used); };
    auto far = at::arange(used - n, used).unsqueeze(1).sub(at::arange(used));
    auto seen = window > 0 ? far.ge(0).logical_and(far.lt(window)) : far.ge(0);
    auto out = at::scaled_dot_product_attention(heads(q, first, n), keys(k), keys(v), seen, 0.0, false, std::nullopt, true);
    outs.push_back(out.squeeze(0).transpose(0, 1));
  }
  return at::cat(outs);
}

// What a test observes on a thread: the calls of libtorch, and the most memory that they took at once.
struct Watch : public c10::MemoryReportingInfoBase {
  std::string calls;
  int64_t depth = 0, now = 0, most = 0;
  at::CallbackHandle handle = 0;

  void reportMemoryUsage(void *, int64_t size, size_t, size_t, c10::Device) override { most = std::max(most, now += size); }
  bool memoryProfilingEnabled() const override { return true; }
};

thread_local std::shared_ptr<Watch> watch;

} // namespace

extern "C" {

// Vector-Jacobian products: the gradients of `sum(ys * grads)` by the leaves.
void metaclaw_vjp(char *error, Tensor **ys, Tensor **grads, size_t n, Tensor **leaves, size_t n_leaves, Tensor **found) {
  guarded(error, [&] {
    auto list = [](Tensor **from, size_t n) {
      variable_list all;
      for (size_t i = 0; i < n; i++) all.push_back(*from[i]);
      return all;
    };
    auto all = torch::autograd::grad(list(ys, n), list(leaves, n_leaves), list(grads, n));
    for (size_t i = 0; i < n_leaves; i++) found[i] = new Tensor(all[i]);
  });
}

// Attention of `q`, [1, heads, t, e], to `k` and `v`, [1, key heads, s, e]; parts of the same queries follow one another.
Tensor *metaclaw_attention_in_parts(char *error, Tensor *q, Tensor *k, Tensor *v, const Part *parts, size_t n) {
  RECORD_FUNCTION("metaclaw::attention_in_parts", {});
  Tensor *found = nullptr;
  guarded(error, [&] { found = new Tensor(InParts::apply(*q, *k, *v, std::vector<Part>(parts, parts + n))); });
  return found;
}

// Attention of the new positions of several sequences, `q`, [t, heads, e], to `k` and `v`, [s, key heads, e], in one call. `where` has
// three tensors of i32: the index of each sequence's first position in `q` and, last, the number of all positions; the index of each
// sequence's first key; the number of each sequence's keys, the last of which are those of its new positions. A position attends to the
// keys up to its own, or to the `window` newest of these if `window` is above 0.
Tensor *metaclaw_attention_of_sequences(char *error, Tensor *q, Tensor *k, Tensor *v, Tensor **where, int64_t max_q, int64_t max_k,
                                        int64_t window) {
  RECORD_FUNCTION("metaclaw::attention_of_sequences", {});
  Tensor *found = nullptr;
  guarded(error, [&] {
    if (!q->is_cuda()) {
      found = new Tensor(of_sequences(*q, *k, *v, {*where[0], *where[1], *where[2]}, window));
      return;
    }
    std::optional<c10::SymInt> left;
    if (window > 0) left = window - 1;
    auto all = at::_flash_attention_forward_symint(*q, *k, *v, *where[0], *where[1], max_q, max_k, 0.0, true, false, std::nullopt, left,
                                                   std::nullopt, *where[2]);
    found = new Tensor(std::get<0>(all));
  });
  return found;
}

// Adds `x w'` to `sum` in place: `sum`, [n, out], f32; `x`, [n, in], and `w`, [out, in], in one dtype. On a GPU one kernel does this for
// 16 bits. If libtorch refuses that once, two kernels do it from then on.
void metaclaw_add_product(char *error, Tensor *sum, Tensor *x, Tensor *w) {
  static std::atomic<bool> at_once{true};
  RECORD_FUNCTION("metaclaw::add_product", {});
  guarded(error, [&] {
    if (x->is_cuda() && x->scalar_type() != at::kFloat && at_once) {
      try {
        at::addmm_out(*sum, *sum, *x, w->t(), at::kFloat);
        return;
      } catch (const c10::OutOfMemoryError &) {
        throw;
      } catch (const c10::Error &) {
        at_once = false;
      }
    }
    sum->add_(at::linear(*x, *w));
  });
}

// Switches autograd off on this thread until `metaclaw_plain_calls_end` is called with the result.
void *metaclaw_plain_calls_begin() { return new at::AutoDispatchBelowADInplaceOrView(); }
void metaclaw_plain_calls_end(void *guard) { delete static_cast<at::AutoDispatchBelowADInplaceOrView *>(guard); }

// Watches this thread until `metaclaw_watch_end`.
void metaclaw_watch_begin() {
  watch = std::make_shared<Watch>();
  auto begin = [](const at::RecordFunction &function) -> std::unique_ptr<at::ObserverContext> {
    watch->calls += std::to_string(watch->depth++) + " " + function.name() + "\n";
    return nullptr;
  };
  auto end = [](const at::RecordFunction &, at::ObserverContext *) { watch->depth--; };
  watch->handle = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, watch);
}

// Returns the most bytes that were taken at once. `calls` gets a text with a line for each call, in order: its depth and its name.
int64_t metaclaw_watch_end(void *list, void (*calls)(void *list, const char *lines)) {
  c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
  at::removeCallback(watch->handle);
  auto done = std::move(watch);
  calls(list, done->calls.c_str());
  return done->most;
}
}
