// C ABI of the row store. Loaded with ctypes; every function is safe to call without the GIL.
// Errors are values: functions return an rs_status, and rs_last_error() holds a sentence for the
// operator about the last failure of the calling thread.
#pragma once
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif
#define RS_API __attribute__((visibility("default")))

typedef enum rs_status {
  RS_OK = 0,
  RS_BAD_ID = 1,        // an id is outside the slice; nothing can be trusted in the output
  RS_DEADLINE = 2,      // the hard deadline passed; late reads are quarantined
  RS_IO = 3,            // the device or the file system reported an error, after retries
  RS_CORRUPT = 4,       // a page or row check failed, after a second read
  RS_RELEASED = 5,      // the lane was released by rs_lane_release
  RS_CIRCUIT_OPEN = 6,  // the circuit is open and the shortened deadline passed
  RS_FORKED = 7,        // the store was opened by another process
  RS_TOO_MANY = 8,      // more rows than lane_rows
  RS_BUSY = 9,          // the lane, or the mode switch, is in use
  RS_CLOSED = 10,
  RS_CONFIG = 11,       // see rs_last_error
  RS_NO_MEMORY = 12,    // the table does not fit in RAM under the given reserve
  RS_PENDING = 13,      // not finished yet
} rs_status;

// What a gather does at its hard deadline. RS_FAIL in a request means: as configured.
typedef enum rs_policy { RS_FAIL = 0, RS_ZERO = 1, RS_WAIT = 2 } rs_policy;

typedef struct rs_store rs_store;
typedef struct rs_node rs_node;
typedef struct rs_callback_lane rs_callback_lane;

// Row i goes to codes + i * codes_stride and scales + i * scales_stride. With scales null the row
// is written fused: codes, then scales, at codes + i * codes_stride. Strides of 0 mean "dense".
// Negative ids are padding and give zeros.
typedef struct rs_request {
  const int64_t* ids;
  void* codes;
  void* scales;
  uint64_t codes_stride;
  uint64_t scales_stride;
  uint64_t deadline_ns;  // from now; 0 takes the configured one
  uint64_t tag;          // echoed in telemetry
  uint32_t count;
  uint32_t layer;
  uint32_t lane;
  uint32_t policy;  // rs_policy
  // results
  uint32_t status;
  uint32_t hits;
  uint32_t misses;
  uint32_t unique;
  uint32_t degraded;  // rows given as zeros because of RS_ZERO
  uint32_t mode;
  uint64_t elapsed_ns;
  uint64_t sequence;
} rs_request;

typedef struct rs_mode_ticket {
  uint32_t status;  // RS_PENDING until the switch ended
  uint32_t mode;    // mode served now
  uint64_t done_bytes;
  uint64_t total_bytes;
  uint64_t elapsed_ns;
  char reason[192];
} rs_mode_ticket;

RS_API uint32_t rs_abi_version(void);
RS_API const char* rs_last_error(void);
RS_API const char* rs_status_name(uint32_t status);

// config: one key=value per line; an unknown key is an error.
RS_API uint32_t rs_open(const char* config, rs_store** store);
RS_API uint32_t rs_close(rs_store* store);
// Writes JSON: effective configuration, choices with their reasons, tables. Returns bytes needed.
RS_API uint64_t rs_info(rs_store* store, char* out, uint64_t capacity);

RS_API uint32_t rs_gather(rs_store* store, rs_request* request);
RS_API uint32_t rs_submit(rs_store* store, const rs_request* request, uint64_t* ticket);
RS_API uint32_t rs_poll(rs_store* store, uint32_t lane, uint64_t ticket, rs_request* result);
RS_API uint32_t rs_wait(rs_store* store, uint32_t lane, uint64_t ticket, uint64_t timeout_ns,
                        rs_request* result);
RS_API uint32_t rs_hint(rs_store* store, uint32_t layer, const int64_t* ids, uint32_t count);
RS_API uint32_t rs_selftest(rs_store* store, uint32_t rows);

// A node is one captured gather: its addresses and capacity are fixed, its row count is read from
// *count when it runs. *status receives the rs_status, *sequence the gather's number.
RS_API uint32_t rs_node_create(rs_store* store, const rs_request* fixed, const uint32_t* count,
                               uint32_t* status, uint64_t* sequence, rs_node** node);
RS_API void rs_node_destroy(rs_node* node);
RS_API void rs_hostfn(void* node);  // signature of a CUDA host callback

// Memory-operation handoff: a poller serves the node whenever *ready becomes non-zero, resets it
// and writes *done = 1 + status. The store writes *done itself if the poller cannot.
RS_API uint32_t rs_lane_bind_flags(rs_store* store, rs_node* node, uint32_t* ready,
                                   uint32_t* done);
RS_API uint32_t rs_lane_unbind_flags(rs_store* store, uint32_t lane);
RS_API uint32_t rs_lane_bind_stamps(rs_store* store, uint32_t lane, const uint64_t* gpu_pre,
                                    const uint64_t* gpu_post);
RS_API uint32_t rs_lane_enqueued(rs_store* store, uint32_t lane);
RS_API uint32_t rs_lane_release(rs_store* store, uint32_t lane, uint32_t status);

RS_API uint32_t rs_mode_set(rs_store* store, const char* target);
RS_API uint32_t rs_mode_poll(rs_store* store, rs_mode_ticket* ticket);

// The CPU twin of CUDA's callback thread: one thread runs everything, in order.
RS_API uint32_t rs_callback_lane_create(rs_store* store, uint32_t capacity,
                                        rs_callback_lane** lane);
RS_API void rs_callback_lane_destroy(rs_callback_lane* lane);
RS_API uint32_t rs_callback_lane_launch(rs_callback_lane* lane, rs_node* node, uint64_t* ticket);
RS_API uint32_t rs_callback_lane_call(rs_callback_lane* lane, void (*function)(void*), void* arg,
                                      uint64_t* ticket);
RS_API uint32_t rs_callback_lane_wait(rs_callback_lane* lane, uint64_t ticket,
                                      uint64_t timeout_ns);
// Yields until *credits is non-zero: what a proxy out of operations does on that thread.
RS_API void rs_spin_for_credit(void* credits);

// Fault injection; RS_CONFIG unless built with RS_INJECT.
RS_API uint32_t rs_inject(rs_store* store, const char* spec);

// Format work for the writer, the verifier and the keeper.
RS_API uint32_t rs_crc32c(const void* data, uint64_t bytes, uint32_t seed);
RS_API void rs_formula_rows(uint32_t layer, const int64_t* ids, uint64_t count,
                            uint32_t row_bytes, void* out);
RS_API uint32_t rs_encode_pages(uint32_t code_bytes, uint32_t scale_bytes, uint32_t layer,
                                uint32_t generation, const int64_t* ids, uint64_t count,
                                const void* codes, const void* scales, void* pages);
// Returns the number of bad pages and stores the index of the first.
RS_API uint64_t rs_verify_pages(uint32_t layer, const int64_t* first_ids, uint64_t count,
                                const void* pages, uint64_t* first_bad);
// Fills image with bytes [0, total) of path by direct reads and checks every page; progress is
// two u64: done bytes, failed chunks.
RS_API uint32_t rs_fill_image(const char* path, void* image, uint64_t total, uint32_t threads,
                              uint64_t* progress);
RS_API uint32_t rs_ram_fit(uint64_t bytes, uint64_t reserve, char* reason, uint64_t capacity);

#if defined(__cplusplus)
}
#endif
