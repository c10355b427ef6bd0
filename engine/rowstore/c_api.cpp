// The C ABI over the store: turns exceptions of the opening paths into statuses.
#include <string.h>

#include <new>

#include "crc32c.h"
#include "fill.h"
#include "inject.h"
#include "store.h"

namespace {

constexpr uint32_t kAbiVersion = 1;
thread_local std::string last_error;

uint32_t failed(uint32_t status, const std::string& text) {
  last_error = text;
  return status;
}

template <class Body>
uint32_t guarded(Body body) {
  last_error.clear();
  try {
    return body();
  } catch (const rs::Failure& failure) {
    return failed(failure.status, failure.what());
  } catch (const std::bad_alloc&) {
    return failed(RS_NO_MEMORY, "out of memory; lower lanes, lane_rows or cache_bytes");
  } catch (const std::exception& error) {
    return failed(RS_CONFIG, error.what());
  }
}

const char* const kStatusNames[] = {"ok",       "bad_id",       "deadline", "io",       "corrupt",
                                    "released", "circuit_open", "forked",   "too_many", "busy",
                                    "closed",   "config",       "no_memory", "pending"};

}  // namespace

struct rs_store {
  rs::Store store;
};

struct rs_node {
  rs::Store* store;
  rs_request fixed;
  const uint32_t* count;
  uint32_t* status;
  uint64_t* sequence;
  uint64_t runs = 0;

  uint32_t run() {
    rs_request request = fixed;
    request.count = __atomic_load_n(count, __ATOMIC_ACQUIRE);
    request.sequence = runs++;
    const uint32_t result =
        request.count > fixed.count ? uint32_t(RS_TOO_MANY) : store->gather(request);
    __atomic_store_n(sequence, runs, __ATOMIC_RELEASE);
    __atomic_store_n(status, result, __ATOMIC_RELEASE);
    return result;
  }
};

struct rs_callback_lane {
  rs::Store* store;
  rs::SerialExecutor executor;
};

extern "C" {

uint32_t rs_abi_version(void) { return kAbiVersion; }

const char* rs_last_error(void) { return last_error.c_str(); }

const char* rs_status_name(uint32_t status) {
  return status <= RS_PENDING ? kStatusNames[status] : "unknown";
}

uint32_t rs_open(const char* config, rs_store** store) {
  return guarded([&] {
    *store = new rs_store{rs::Store(config)};
    return uint32_t(RS_OK);
  });
}

uint32_t rs_close(rs_store* store) {
  if (!store) return RS_CLOSED;
  if (store->store.forked()) return RS_FORKED;  // its threads and rings live in the parent
  delete store;
  return RS_OK;
}

uint64_t rs_info(rs_store* store, char* out, uint64_t capacity) {
  const std::string text = store->store.info();
  if (text.size() + 1 <= capacity) memcpy(out, text.c_str(), text.size() + 1);
  return text.size() + 1;
}

uint32_t rs_gather(rs_store* store, rs_request* request) { return store->store.gather(*request); }

uint32_t rs_submit(rs_store* store, const rs_request* request, uint64_t* ticket) {
  return guarded([&] { return store->store.submit(*request, ticket); });
}

uint32_t rs_poll(rs_store* store, uint32_t lane, uint64_t ticket, rs_request* result) {
  return rs_wait(store, lane, ticket, 0, result);
}

uint32_t rs_wait(rs_store* store, uint32_t lane, uint64_t ticket, uint64_t timeout_ns,
                 rs_request* result) {
  return store->store.wait(lane, ticket, timeout_ns, result);
}

uint32_t rs_hint(rs_store* store, uint32_t layer, const int64_t* ids, uint32_t count) {
  return store->store.hint(layer, ids, count);
}

uint32_t rs_selftest(rs_store* store, uint32_t rows) {
  return guarded([&] { return store->store.selftest(rows); });
}

uint32_t rs_node_create(rs_store* store, const rs_request* fixed, const uint32_t* count,
                        uint32_t* status, uint64_t* sequence, rs_node** node) {
  if (fixed->lane >= store->store.lanes() || fixed->count > store->store.config().lane_rows)
    return failed(RS_CONFIG, "the node's lane or capacity exceeds lanes or lane_rows");
  *node = new rs_node{&store->store, *fixed, count, status, sequence};
  return RS_OK;
}

void rs_node_destroy(rs_node* node) { delete node; }

void rs_hostfn(void* node) { static_cast<rs_node*>(node)->run(); }

uint32_t rs_lane_bind_flags(rs_store* store, rs_node* node, uint32_t* ready, uint32_t* done) {
  return guarded([&] {
    const rs::Config& config = store->store.config();
    const uint64_t overdue_ns = (config.hard_prefill_ms + 500) * rs::kMs;
    store->store.bind_flags(std::make_unique<rs::FlagBinding>(
        node->fixed.lane, ready, done, overdue_ns, [node] { return node->run(); }));
    return uint32_t(RS_OK);
  });
}

uint32_t rs_lane_unbind_flags(rs_store* store, uint32_t lane) {
  return store->store.unbind_flags(lane);
}

uint32_t rs_lane_bind_stamps(rs_store* store, uint32_t lane, const uint64_t* gpu_pre,
                             const uint64_t* gpu_post) {
  return store->store.bind_stamps(lane, gpu_pre, gpu_post);
}

uint32_t rs_lane_enqueued(rs_store* store, uint32_t lane) {
  store->store.stamp(lane, &rs::layout::Lane::enq);
  return RS_OK;
}

uint32_t rs_lane_release(rs_store* store, uint32_t lane, uint32_t status) {
  return guarded([&] {
    const uint32_t result = store->store.release(lane, status);
    return result == RS_OK ? result
                           : failed(result, "no such lane, or not a status that ends a gather");
  });
}

uint32_t rs_mode_set(rs_store* store, const char* target) {
  return guarded([&] {
    const uint32_t status = store->store.switcher().request(target);
    if (status == RS_CONFIG)
      return failed(status, std::string(target) + " is not one of nvme, ram, legacy");
    return status == RS_BUSY ? failed(status, "another switch is running; try again after it")
                             : status;
  });
}

uint32_t rs_mode_poll(rs_store* store, rs_mode_ticket* ticket) {
  store->store.switcher().poll(ticket);
  return RS_OK;
}

uint32_t rs_callback_lane_create(rs_store* store, uint32_t capacity, rs_callback_lane** lane) {
  return guarded([&] {
    *lane = new rs_callback_lane{&store->store, rs::SerialExecutor(capacity, "rs-callback")};
    return uint32_t(RS_OK);
  });
}

void rs_callback_lane_destroy(rs_callback_lane* lane) { delete lane; }

uint32_t rs_callback_lane_launch(rs_callback_lane* lane, rs_node* node, uint64_t* ticket) {
  const uint32_t index = node->fixed.lane;
  rs::Store* store = lane->store;
  *ticket = lane->executor.launch([store, node, index] {
    node->run();
    store->stamp(index, &rs::layout::Lane::gpu_post);
  });
  if (*ticket == 0) return RS_BUSY;
  // No kernel runs before the node here, so the node is reached as soon as it is launched.
  store->stamp(index, &rs::layout::Lane::enq);
  store->stamp(index, &rs::layout::Lane::gpu_pre);
  return RS_OK;
}

uint32_t rs_callback_lane_call(rs_callback_lane* lane, void (*function)(void*), void* arg,
                               uint64_t* ticket) {
  *ticket = lane->executor.launch([function, arg] { function(arg); });
  return *ticket ? RS_OK : RS_BUSY;
}

uint32_t rs_callback_lane_wait(rs_callback_lane* lane, uint64_t ticket, uint64_t timeout_ns) {
  return lane->executor.wait(ticket, timeout_ns);
}

void rs_spin_for_credit(void* credits) {
  while (__atomic_load_n(static_cast<uint32_t*>(credits), __ATOMIC_ACQUIRE) == 0)
    sched_yield();
}

uint32_t rs_inject(rs_store*, const char* spec) {
#if defined(RS_INJECT)
  return guarded([&] {
    rs::inject::apply(spec);
    return uint32_t(RS_OK);
  });
#else
  (void)spec;
  return failed(RS_CONFIG, "this library was built without RS_INJECT; load rowstore_inject");
#endif
}

uint32_t rs_crc32c(const void* data, uint64_t bytes, uint32_t seed) {
  return rs::crc32c(data, bytes, seed);
}

void rs_formula_rows(uint32_t layer, const int64_t* ids, uint64_t count, uint32_t row_bytes,
                     void* out) {
  for (uint64_t i = 0; i < count; ++i)
    rs::formula_row(layer, uint64_t(ids[i]), row_bytes, static_cast<uint8_t*>(out) + i * row_bytes);
}

uint32_t rs_encode_pages(uint32_t code_bytes, uint32_t scale_bytes, uint32_t layer,
                         uint32_t generation, const int64_t* ids, uint64_t count,
                         const void* codes, const void* scales, void* pages) {
  const rs::RowFormat format{code_bytes, scale_bytes};
  if (code_bytes % 8 || scale_bytes % 8 || format.rows_per_page() == 0)
    return failed(RS_CONFIG, "row parts must be multiples of 8 bytes and fit a page");
  const uint64_t per_page = format.rows_per_page();
  for (uint64_t from = 0, page = 0; from < count; from += per_page, ++page)
    rs::encode_page(format, layer, generation, ids + from,
                    uint32_t(std::min(per_page, count - from)),
                    static_cast<const uint8_t*>(codes) + from * code_bytes,
                    static_cast<const uint8_t*>(scales) + from * scale_bytes,
                    static_cast<uint8_t*>(pages) + page * rs::kPage);
  return RS_OK;
}

uint64_t rs_verify_pages(uint32_t layer, const int64_t* first_ids, uint64_t count,
                         const void* pages, uint64_t* first_bad) {
  uint64_t bad = 0;
  for (uint64_t k = 0; k < count; ++k) {
    const uint8_t* page = static_cast<const uint8_t*>(pages) + k * rs::kPage;
    if (rs::page_is_intact(page, layer, uint64_t(first_ids[k]))) continue;
    if (bad++ == 0) *first_bad = k;
  }
  return bad;
}

uint32_t rs_fill_image(const char* path, void* image, uint64_t total, uint32_t threads,
                       uint64_t* progress) {
  return guarded([&] {
    const auto table = rs::Table::open_rws1(path, "");
    if (table->image_end() - table->image_from() > total)
      return failed(RS_CONFIG, "the image is smaller than the table");
    rs::FillProgress counted;
    std::atomic<bool> stop{false}, ended{false};
    std::atomic<uint32_t> never{0};
    std::thread reporter([&] {
      while (!ended.load()) {
        __atomic_store_n(progress, counted.done_bytes.load(), __ATOMIC_RELAXED);
        rs::futex_wait(never, 0, 20 * rs::kMs);
      }
    });
    const uint32_t status =
        rs::fill_image(*table, static_cast<uint8_t*>(image), {threads, 100}, stop, counted);
    ended.store(true);
    reporter.join();
    progress[0] = counted.done_bytes.load();
    progress[1] = counted.bad_chunks.load();
    return status == RS_OK ? status : failed(status, std::string(path) + " did not fill");
  });
}

uint32_t rs_ram_fit(uint64_t bytes, uint64_t reserve, char* reason, uint64_t capacity) {
  const rs::Fit fit = rs::ram_fit(bytes, reserve);
  snprintf(reason, capacity, "%s", fit.reason.c_str());
  return fit.fits ? RS_OK : RS_NO_MEMORY;
}

}  // extern "C"
