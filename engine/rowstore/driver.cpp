#include "driver.h"

#include <errno.h>

#include <algorithm>

namespace rs {
namespace {

constexpr uint32_t kBuckets = 1024;

uint32_t bucket_of(uint64_t page) { return uint32_t(mix64(page) >> 20) % kBuckets; }

}  // namespace

Driver::Driver(const DriverOptions& options, const Catalog& catalog, Cache* cache, Sink& sink,
               Telemetry& telemetry, const EngineMaker& make_engine)
    : options_(options),
      catalog_(catalog),
      cache_(cache),
      sink_(sink),
      telemetry_(telemetry),
      slot_bytes_(catalog.slot_bytes()),
      hedges_max_(std::max(2u, options.depth / 4)),
      buckets_(kBuckets, kNone),
      soft_(options.soft_ns) {
  const uint32_t slots = options.depth * 2;
  buffers_ = Region::anonymous(uint64_t(slots) * slot_bytes_, "thp");
  if (!buffers_.populate(0, buffers_.bytes(), true))
    throw Failure(RS_NO_MEMORY, "no memory for read buffers; lower depth or lanes");
  buffers_.dont_fork();
  primary_ = make_engine(slots);
  primary_->register_buffers(buffers_.data(), uint64_t(slots) * slot_bytes_);
  if (options.hedge) hedge_ = make_engine(slots);
  slots_.resize(slots);
  flights_.resize(slots);
  waiters_.resize(options.waiters_max);
  for (uint32_t k = slots; k-- > 0;) {
    free_slots_.push_back(k);
    free_flights_.push_back(k);
  }
  for (uint32_t k = options.waiters_max; k-- > 0;) free_waiters_.push_back(k);
}

Driver::~Driver() {
  const uint64_t give_up = now_ns() + 2 * kSecond;
  while (slots_used_ > 0 && now_ns() < give_up) pump(kMs);
  for (const Slot& slot : slots_) telemetry_.unlist_read(slot.listed);
  if (slots_used_ == 0) return;
  // The kernel may still write into these buffers: unmapping them would let it write into
  // whatever is mapped there next.
  [[maybe_unused]] auto* kept = new Region(std::move(buffers_));
}

uint32_t Driver::find(uint64_t page) const {
  uint32_t at = buckets_[bucket_of(page)];
  while (at != kNone && flights_[at].page != page) at = flights_[at].next_in_bucket;
  return at;
}

bool Driver::take(const Want& want) {
  if (free_waiters_.empty()) return false;
  const uint64_t page = catalog_.page_of(want.row);
  uint32_t flight = find(page);
  if (flight != kNone) {
    const uint64_t now = now_ns();
    if (is_stale(flights_[flight], now)) {
      forget(flight, now);
      flight = kNone;
    }
  }
  if (flight == kNone) {
    if (free_slots_.empty() || free_flights_.empty()) return false;
    if (slots_used_ - quarantined_ >= options_.depth) return false;
    flight = start_flight(want, page);
    if (flight == kNone) return false;
  }
  attach(flight, want);
  return true;
}

uint32_t Driver::start_flight(const Want& want, uint64_t page) {
  const uint32_t at = free_flights_.back();
  free_flights_.pop_back();
  Flight& flight = flights_[at];
  flight = Flight{};
  flight.page = page;
  flight.start_ns = now_ns();
  flight.used = true;
  uint32_t& bucket = buckets_[bucket_of(page)];
  flight.next_in_bucket = bucket;
  bucket = at;
  if (telemetry_.on()) {
    layout::Shard& s = shard(page);
    store_relaxed(s.holder_tid, thread_id());
    if (load_relaxed(s.acquire_ns) == 0) store_relaxed(s.acquire_ns, flight.start_ns);
    add_relaxed(s.acquisitions, uint64_t(1));
  }
  if (want.lane == kNoLane) telemetry_.count(&layout::Counters::prefetch_issued);
  if (send(at, false, want.lane)) return at;
  leave_map(at, flight.start_ns);
  free_flight(at);
  return kNone;
}

void Driver::attach(uint32_t at, const Want& want) {
  const uint32_t waiter = free_waiters_.back();
  free_waiters_.pop_back();
  waiters_[waiter] = {want, flights_[at].first_waiter};
  flights_[at].first_waiter = waiter;
  if (telemetry_.on()) add_relaxed(shard(flights_[at].page).waiters, 1u);
}

bool Driver::send(uint32_t at, bool hedge, uint32_t lane) {
  if (free_slots_.empty()) return false;
  const uint32_t id = free_slots_.back();
  Flight& flight = flights_[at];
  uint64_t page_in_table;
  const Table* table = catalog_.table_of_page(flight.page, &page_in_table);
  const Read read{id, hedge ? table->hedge_fd() : table->fd(), table->read_offset(page_in_table),
                  table->read_bytes(), buffer(id)};
  if (!(hedge ? hedge_ : primary_)->submit(read)) return false;
  free_slots_.pop_back();
  Slot& slot = slots_[id];
  slot.submit_ns = flight.reads_made == 0 ? flight.start_ns : now_ns();
  slot.flight = at;
  slot.hedge = hedge;
  if (slots_used_ == 0) progress_ns_ = slot.submit_ns;
  slot.listed = telemetry_.list_read(flight.page, slot.submit_ns, lane, flight.reads_made, hedge);
  ++slots_used_;
  hedges_out_ += hedge;
  ++flight.reads_out;
  ++flight.reads_made;
  ++tally_.issued;
  ++tally_.inflight;
  return true;
}

// Before and after every wait: one update a batch instead of several a read, and a reader of the
// page still sees all that is out while this thread waits.
void Driver::publish() {
  if (tally_.issued) telemetry_.count(&layout::Counters::reads_issued, tally_.issued);
  if (tally_.completed) telemetry_.count(&layout::Counters::reads_completed, tally_.completed);
  if (tally_.bytes) telemetry_.count(&layout::Counters::read_bytes, tally_.bytes);
  if (tally_.inflight) telemetry_.gauge_add(&layout::Gauges::inflight_reads, tally_.inflight);
  tally_ = Tally{};
}

void Driver::pump(uint64_t timeout_ns) {
  constexpr uint64_t kBetweenHedges = 200'000;
  publish();
  if (slots_used_ == 0) return;
  Completion done[64];
  const bool only_hedges = hedges_out_ > 0 && hedges_out_ == slots_used_;
  if (hedges_out_ > 0) timeout_ns = std::min(timeout_ns, kBetweenHedges);
  IoEngine& first = only_hedges ? *hedge_ : *primary_;
  const int got = first.reap(done, 64, timeout_ns);
  const uint64_t now = now_ns();
  complete_all(done, got, now);
  if (hedges_out_ > 0 && !only_hedges) {
    publish();
    complete_all(done, hedge_->reap(done, 64, 0), now);
  }
  if (now - scanned_ns_ >= kMs) scan(now);
  publish();
}

void Driver::complete_all(const Completion* done, int count, uint64_t now) {
  for (int k = 0; k < count; ++k) {
    ++tally_.completed;
    if (done[k].result > 0) tally_.bytes += uint64_t(done[k].result);
  }
  publish();  // before anybody has the rows
  for (int k = 0; k < count; ++k) complete(done[k], now);
}

void Driver::free_slot(uint32_t id) {
  Slot& slot = slots_[id];
  telemetry_.unlist_read(slot.listed);
  --tally_.inflight;
  hedges_out_ -= slot.hedge;
  slot = Slot{};
  --slots_used_;
  free_slots_.push_back(id);
  // Counted once a millisecond, so it may lag behind; it never exceeds what is out.
  if (quarantined_ > slots_used_) set_quarantined(slots_used_);
}

void Driver::set_quarantined(uint32_t slots) {
  telemetry_.gauge_add(&layout::Gauges::quarantined_slots, int64_t(slots) - int64_t(quarantined_));
  quarantined_ = slots;
}

void Driver::complete(const Completion& done, uint64_t now) {
  const Slot slot = slots_[done.id];
  const uint32_t at = slot.flight;
  Flight& flight = flights_[at];
  const uint64_t took = now - slot.submit_ns;
  progress_ns_ = now;
  soft_.note(took);
  telemetry_.observe(layout::HISTOGRAM_DEVICE_READ, took);
  --flight.reads_out;
  if (!flight.served) {
    const uint32_t error = judge(flight, done.id, done.result);
    if (error == RS_OK) {
      if (slot.hedge) telemetry_.count(&layout::Counters::hedges_won);
      answer_all(flight, buffer(done.id), RS_OK);
      leave_map(at, now);
    } else {
      fail_or_retry(at, error, now);
    }
  }
  free_slot(done.id);
  if (flight.served && flight.reads_out == 0) free_flight(at);
}

uint32_t Driver::judge(const Flight& flight, uint32_t id, int32_t result) {
  uint64_t page_in_table;
  const Table* table = catalog_.table_of_page(flight.page, &page_in_table);
  if (result < 0 || uint32_t(result) < table->expected_bytes(page_in_table) || result == 0) {
    telemetry_.error(result < 0 ? layout::ERROR_IO : layout::ERROR_SHORT_READ);
    telemetry_.event(layout::EVENT_READ_ERROR, kNoLane, flight.page, uint64_t(int64_t(result)));
    return RS_IO;
  }
  for (uint32_t w = flight.first_waiter; w != kNone; w = waiters_[w].next) {
    const RowPlace place = catalog_.place(waiters_[w].want.row);
    if (place.table->row_ok(buffer(id), place.local, options_.verify)) continue;
    telemetry_.count(&layout::Counters::crc_failures);
    telemetry_.error(layout::ERROR_CORRUPT);
    telemetry_.event(layout::EVENT_CORRUPT, waiters_[w].want.lane, flight.page, place.local);
    return RS_CORRUPT;
  }
  return RS_OK;
}

void Driver::fail_or_retry(uint32_t at, uint32_t error, uint64_t now) {
  Flight& flight = flights_[at];
  flight.error = error;
  if (flight.reads_out > 0) return;  // the other read may still be good
  if (flight.reads_made < kReadsMax && send(at, false, kNoLane)) return;
  answer_all(flight, nullptr, error);
  leave_map(at, now);
}

void Driver::answer_all(Flight& flight, const uint8_t* page, uint32_t status) {
  uint32_t w = flight.first_waiter;
  uint32_t answered = 0;
  while (w != kNone) {
    const Waiter waiter = waiters_[w];
    const RowPlace place = catalog_.place(waiter.want.row);
    if (page) {
      const RowView view = place.table->row_in_buffer(page, place.local);
      if (cache_) cache_->put(waiter.want.row, view, waiter.want.lane == kNoLane);
      sink_.deliver(waiter.want, &view, RS_OK);
    } else {
      sink_.deliver(waiter.want, nullptr, status);
    }
    free_waiters_.push_back(w);
    w = waiter.next;
    ++answered;
  }
  flight.first_waiter = kNone;
  flight.served = true;
  if (telemetry_.on()) add_relaxed(shard(flight.page).waiters, -answered);
}

void Driver::leave_map(uint32_t at, uint64_t now) {
  Flight& flight = flights_[at];
  uint32_t* link = &buckets_[bucket_of(flight.page)];
  while (*link != at) link = &flights_[*link].next_in_bucket;
  *link = flight.next_in_bucket;
  if (!telemetry_.on()) return;
  layout::Shard& s = shard(flight.page);
  const uint64_t claimed = load_relaxed(s.acquire_ns);
  if (claimed != 0 && now > claimed && now - claimed > load_relaxed(s.max_hold_ns))
    store_relaxed(s.max_hold_ns, now - claimed);
  store_relaxed(s.acquire_ns, uint64_t(0));
  store_relaxed(s.holder_tid, 0u);
}

// Late, and nobody waits for it any more: a new request deserves a new read.
bool Driver::is_stale(const Flight& flight, uint64_t now) {
  return now - flight.start_ns > soft_.late_ns(now) && !any_alive(flight);
}

void Driver::forget(uint32_t at, uint64_t now) {
  Flight& flight = flights_[at];
  answer_all(flight, nullptr, RS_DEADLINE);
  leave_map(at, now);
  if (flight.reads_out == 0) free_flight(at);
}

void Driver::free_flight(uint32_t at) {
  flights_[at].used = false;
  free_flights_.push_back(at);
}

bool Driver::any_alive(const Flight& flight) const {
  for (uint32_t w = flight.first_waiter; w != kNone; w = waiters_[w].next)
    if (sink_.alive(waiters_[w].want)) return true;
  return false;
}

// Once a millisecond: count what nobody waits for any more, hedge what is late.
void Driver::scan(uint64_t now) {
  scanned_ns_ = now;
  if (slots_used_ == 0) return;
  uint32_t quarantined = 0, hedged = 0;
  for (Flight& flight : flights_) {
    if (!flight.used) continue;
    flight.alive = !flight.served && any_alive(flight);
    if (flight.alive) hedged += flight.reads_made > 1;
    else quarantined += flight.reads_out;
  }
  set_quarantined(quarantined);
  const uint64_t late_ns = soft_.late_ns(now);
  for (uint32_t at = 0; at < flights_.size(); ++at) {
    Flight& flight = flights_[at];
    if (!flight.used || !flight.alive) continue;
    if (now - flight.start_ns < late_ns * flight.reads_made) continue;
    if (!flight.counted_soft) telemetry_.count(&layout::Counters::soft_deadlines);
    flight.counted_soft = true;
    // When everything is late, reading everything twice only makes it later.
    const bool may_hedge = hedge_ && flight.reads_made < kReadsMax && hedged < hedges_max_;
    if (!may_hedge || !send(at, true, kNoLane)) continue;
    ++hedged;
    telemetry_.count(&layout::Counters::hedges_issued);
    telemetry_.event(layout::EVENT_HEDGE, waiters_[flight.first_waiter].want.lane, flight.page,
                     now - flight.start_ns);
  }
}

}  // namespace rs
