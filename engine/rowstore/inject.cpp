#include "inject.h"

#include "common.h"

#if defined(RS_INJECT)
#include <errno.h>

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <vector>
#endif

namespace rs::inject {

#if defined(RS_INJECT)
namespace {

struct Rule {
  Fault fault = Fault::kNone;
  uint64_t offset = UINT64_MAX;
  uint64_t count = UINT64_MAX;
  uint64_t skip = 0;
  uint64_t delay_ns = 0;
};

std::mutex mutex;
std::vector<Rule> rules;
std::set<std::string> refused;
std::atomic<bool> any{false};

Fault fault_named(const std::string& name) {
  static const std::map<std::string, Fault> names = {
      {"delay", Fault::kDelay}, {"stall", Fault::kDelay}, {"eio", Fault::kEio},
      {"short", Fault::kShort}, {"torn", Fault::kTorn},   {"wrong", Fault::kWrong},
      {"lost", Fault::kLost}};
  const auto found = names.find(name);
  if (found == names.end()) throw Failure(RS_CONFIG, "fault=" + name + " is not known");
  return found->second;
}

class InjectingEngine final : public IoEngine {
 public:
  explicit InjectingEngine(std::unique_ptr<IoEngine> inner) : inner_(std::move(inner)) {}

  const char* name() const override { return inner_->name(); }
  uint32_t kind() const override { return inner_->kind(); }
  void register_buffers(uint8_t* base, uint64_t bytes) override {
    inner_->register_buffers(base, bytes);
  }

  bool submit(const Read& read) override {
    const Hit hit = match(read.offset);
    Read sent = read;
    if (hit.fault == Fault::kWrong) sent.offset += kPage;
    if (hit.fault == Fault::kEio) {
      ready_.push_back({read.id, -EIO});
      return true;
    }
    if (hit.fault != Fault::kNone) afflicted_[read.id] = {hit, read};
    return inner_->submit(sent);
  }

  int reap(Completion* out, int max, uint64_t timeout_ns) override {
    release_due();
    const uint64_t bounded = ready_.empty() && held_.empty() ? timeout_ns : 0;
    Completion raw[64];
    const int got = inner_->reap(raw, std::min(max, 64), std::min(bounded, timeout_ns));
    for (int k = 0; k < got; ++k) settle(raw[k]);
    release_due();
    if (ready_.empty() && !held_.empty() && timeout_ns > 0) {
      static const std::atomic<uint32_t> never{0};
      futex_wait(never, 0, std::min<uint64_t>(timeout_ns, kMs));
      release_due();
    }
    int n = 0;
    for (; n < max && !ready_.empty(); ++n) {
      out[n] = ready_.front();
      ready_.pop_front();
    }
    return n;
  }

 private:
  struct Affliction {
    Hit hit;
    Read read;
  };
  struct Held {
    uint64_t due_ns;
    Completion completion;
  };

  void settle(Completion done) {
    const auto found = afflicted_.find(done.id);
    if (found == afflicted_.end()) {
      ready_.push_back(done);
      return;
    }
    const Affliction what = found->second;
    afflicted_.erase(found);
    switch (what.hit.fault) {
      case Fault::kLost:
        return;
      case Fault::kDelay:
        held_.push_back({now_ns() + what.hit.delay_ns, done});
        return;
      case Fault::kShort:
        done.result /= 2;
        break;
      case Fault::kTorn:
        for (uint32_t at = 16; at < what.read.length; at += 64) what.read.buffer[at] ^= 0x40;
        break;
      default:
        break;
    }
    ready_.push_back(done);
  }

  void release_due() {
    const uint64_t now = now_ns();
    for (size_t k = 0; k < held_.size();) {
      if (held_[k].due_ns > now) {
        ++k;
        continue;
      }
      ready_.push_back(held_[k].completion);
      held_[k] = held_.back();
      held_.pop_back();
    }
  }

  std::unique_ptr<IoEngine> inner_;
  std::map<uint32_t, Affliction> afflicted_;
  std::vector<Held> held_;
  std::deque<Completion> ready_;
};

}  // namespace

void apply(const std::string& spec) {
  const std::lock_guard<std::mutex> guard(mutex);
  if (spec == "clear") {
    rules.clear();
    refused.clear();
    any = false;
    return;
  }
  Rule rule;
  std::stringstream stream(spec);
  for (std::string word; stream >> word;) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "refuse") refused.insert(value);
    else if (key == "fault") rule.fault = fault_named(value);
    else if (key == "offset") rule.offset = std::stoull(value);
    else if (key == "count") rule.count = std::stoull(value);
    else if (key == "skip") rule.skip = std::stoull(value);
    else if (key == "ms") rule.delay_ns = std::stoull(value) * kMs;
    else throw Failure(RS_CONFIG, "inject: " + key + " is not known");
  }
  if (rule.fault != Fault::kNone) rules.push_back(rule);
  any = true;
}

bool refuses(const char* what) {
  const std::lock_guard<std::mutex> guard(mutex);
  return refused.count(what) > 0;
}

Hit match(uint64_t offset) {
  if (!any.load(std::memory_order_relaxed)) return {};
  const std::lock_guard<std::mutex> guard(mutex);
  for (Rule& rule : rules) {
    if (rule.count == 0 || (rule.offset != UINT64_MAX && rule.offset != offset)) continue;
    if (rule.skip > 0) {
      --rule.skip;
      continue;
    }
    if (rule.count != UINT64_MAX) --rule.count;
    return {rule.fault, rule.delay_ns};
  }
  return {};
}

std::unique_ptr<IoEngine> wrap(std::unique_ptr<IoEngine> engine) {
  return std::make_unique<InjectingEngine>(std::move(engine));
}

int before_blocking_read(uint64_t offset, const std::atomic<uint32_t>& release) {
  const Hit hit = match(offset);
  if (hit.fault == Fault::kEio) return -EIO;
  const uint64_t until = now_ns() + hit.delay_ns;
  while (hit.fault == Fault::kDelay && now_ns() < until && release.load() == 0)
    futex_wait(release, 0, until - now_ns());
  return 0;
}

#else

int before_blocking_read(uint64_t, const std::atomic<uint32_t>&) { return 0; }

#endif

}  // namespace rs::inject
