// Turns wanted rows into page reads and finished reads into rows. Used by exactly one thread: a
// lane that drives its own ring, or an owner thread that serves all lanes.
//
// A page is read once however many rows of it are wanted (single flight). A read that is late is
// repeated on a second engine and the first answer wins (hedge). A read whose waiters gave up
// keeps its buffer until the kernel is done with it (quarantine).
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "cache.h"
#include "catalog.h"
#include "io_engine.h"
#include "soft_deadline.h"
#include "telemetry.h"

namespace rs {

struct Want {
  uint64_t seq;       // of the lane's request
  uint32_t lane;      // kNoLane: a hint, only the cache wants the row
  uint32_t position;  // in the request
  uint32_t row;       // of the store
};

// Receives rows. Wants whose request has ended are refused by the sink, never by the driver.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual bool alive(const Want& want) const = 0;
  virtual void deliver(const Want& want, const RowView* row, uint32_t status) = 0;
};

using EngineMaker = std::function<std::unique_ptr<IoEngine>(uint32_t entries)>;

struct DriverOptions {
  uint32_t depth;
  uint32_t waiters_max;
  uint64_t soft_ns;
  uint64_t stuck_ns;  // no completion for so long, with every buffer out: the drive is dead
  Verify verify;
  bool hedge;
};

class Driver {
 public:
  Driver(const DriverOptions& options, const Catalog& catalog, Cache* cache, Sink& sink,
         Telemetry& telemetry, const EngineMaker& make_engine);
  // Waits at most 2 s for reads still in the kernel; buffers it may yet write are not freed.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // False when there is no room now; call pump() and try again.
  bool take(const Want& want);
  void pump(uint64_t timeout_ns);

  uint32_t outstanding() const { return slots_used_; }
  uint32_t quarantined() const { return quarantined_; }
  // No buffer is left for new reads and the device gives none back. A slow drive with many
  // late reads is not that: it still completes some.
  bool quarantine_full(uint64_t now) const {
    return free_slots_.empty() && now - progress_ns_ > options_.stuck_ns;
  }

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  static constexpr uint32_t kReadsMax = 3;   // per flight, hedges and retries together

  struct Waiter {
    Want want;
    uint32_t next;
  };
  struct Flight {
    uint64_t page = 0;
    uint64_t start_ns = 0;
    uint32_t first_waiter = kNone;
    uint32_t next_in_bucket = kNone;
    uint8_t reads_out = 0;
    uint8_t reads_made = 0;
    bool used = false;
    bool served = false;  // answered; only stray reads keep it
    bool counted_soft = false;
    bool alive = false;  // somebody waited for it at the last scan
    uint32_t error = 0;
  };
  struct Slot {
    uint64_t submit_ns = 0;
    uint32_t flight = kNone;
    int listed = -1;
    bool hedge = false;
  };
  struct Tally {
    uint64_t issued = 0, completed = 0, bytes = 0;
    int64_t inflight = 0;
  };

  void publish();
  uint32_t find(uint64_t page) const;
  uint32_t start_flight(const Want& want, uint64_t page);
  void attach(uint32_t flight, const Want& want);
  bool send(uint32_t flight, bool hedge, uint32_t lane);
  void complete_all(const Completion* done, int count, uint64_t now);
  void complete(const Completion& done, uint64_t now);
  void free_slot(uint32_t slot);
  uint32_t judge(const Flight& flight, uint32_t slot, int32_t result);
  void fail_or_retry(uint32_t flight, uint32_t error, uint64_t now);
  void answer_all(Flight& flight, const uint8_t* buffer, uint32_t status);
  void leave_map(uint32_t flight, uint64_t now);
  bool is_stale(const Flight& flight, uint64_t now);
  void forget(uint32_t flight, uint64_t now);
  void free_flight(uint32_t flight);
  void scan(uint64_t now);
  void set_quarantined(uint32_t slots);
  bool any_alive(const Flight& flight) const;
  uint8_t* buffer(uint32_t slot) const { return buffers_.data() + uint64_t(slot) * slot_bytes_; }
  layout::Shard& shard(uint64_t page) { return telemetry_.page().shard[mix64(page) & 255]; }

  DriverOptions options_;
  const Catalog& catalog_;
  Cache* cache_;
  Sink& sink_;
  Telemetry& telemetry_;
  uint32_t slot_bytes_;
  uint32_t hedges_max_;
  Region buffers_;
  std::unique_ptr<IoEngine> primary_, hedge_;
  std::vector<Slot> slots_;
  std::vector<Flight> flights_;
  std::vector<Waiter> waiters_;
  std::vector<uint32_t> free_slots_, free_flights_, free_waiters_, buckets_;
  uint32_t slots_used_ = 0, hedges_out_ = 0, quarantined_ = 0;
  uint64_t scanned_ns_ = 0, progress_ns_ = 0;
  SoftDeadline soft_;
  Tally tally_;
};

}  // namespace rs
