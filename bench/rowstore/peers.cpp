// Other ways to read the same rows, behind one small C ABI, so that what is compared is the way
// of reading and not the language: serial direct reads, thread pools, a memory map, LMDB, RocksDB.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(WITH_LMDB)
#include <lmdb.h>
#endif
#if defined(WITH_ROCKSDB)
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#endif

namespace {

constexpr uint64_t kPage = 4096, kRow = 264, kStride = 268, kPerPage = 15;

class Peer {
 public:
  virtual ~Peer() = default;
  // False when a row could not be read.
  virtual bool gather(const int64_t* rows, uint32_t count, uint8_t* out) = 0;
  virtual bool load(const int64_t*, uint64_t, const uint8_t*) { return false; }
  virtual bool loaded() { return true; }
};

bool read_row(int fd, int64_t row, uint8_t* page, uint8_t* out) {
  const off_t at = off_t(kPage * (1 + uint64_t(row) / kPerPage));
  if (pread(fd, page, kPage, at) != ssize_t(kPage)) return false;
  memcpy(out, page + uint64_t(row) % kPerPage * kStride, kRow);
  return true;
}

class Serial final : public Peer {
 public:
  explicit Serial(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_DIRECT)) {}
  ~Serial() override { close(fd_); }
  bool gather(const int64_t* rows, uint32_t count, uint8_t* out) override {
    alignas(4096) uint8_t page[kPage];
    for (uint32_t i = 0; i < count; ++i)
      if (!read_row(fd_, rows[i], page, out + i * kRow)) return false;
    return true;
  }

 private:
  int fd_;
};

class Pool final : public Peer {
 public:
  Pool(const std::string& path, uint32_t threads)
      : fd_(open(path.c_str(), O_RDONLY | O_DIRECT)) {
    for (uint32_t k = 0; k < threads; ++k) threads_.emplace_back([this] { work(); });
  }
  ~Pool() override {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      stop_ = true;
      start_.notify_all();
    }
    for (auto& thread : threads_) thread.join();
    close(fd_);
  }
  bool gather(const int64_t* rows, uint32_t count, uint8_t* out) override {
    std::unique_lock<std::mutex> lock(mutex_);
    rows_ = rows;
    out_ = out;
    count_ = count;
    next_ = 0;
    failed_ = false;
    busy_ = uint32_t(threads_.size());
    ++round_;
    start_.notify_all();
    done_.wait(lock, [&] { return busy_ == 0; });
    return !failed_;
  }

 private:
  void work() {
    alignas(4096) uint8_t page[kPage];
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      start_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      lock.unlock();
      for (uint32_t i; (i = next_.fetch_add(1)) < count_;)
        if (!read_row(fd_, rows_[i], page, out_ + i * kRow)) failed_ = true;
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  int fd_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const int64_t* rows_ = nullptr;
  uint8_t* out_ = nullptr;
  uint32_t count_ = 0, busy_ = 0;
  uint64_t round_ = 0;
  std::atomic<uint32_t> next_{0};
  std::atomic<bool> failed_{false};
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

class Map final : public Peer {
 public:
  explicit Map(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY);
    struct stat info;
    fstat(fd, &info);
    bytes_ = uint64_t(info.st_size);
    base_ = static_cast<uint8_t*>(mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0));
    madvise(base_, bytes_, MADV_RANDOM);
    close(fd);
  }
  ~Map() override { munmap(base_, bytes_); }
  bool gather(const int64_t* rows, uint32_t count, uint8_t* out) override {
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t row = uint64_t(rows[i]);
      memcpy(out + i * kRow,
             base_ + kPage * (1 + row / kPerPage) + row % kPerPage * kStride, kRow);
    }
    return true;
  }

 private:
  uint8_t* base_;
  uint64_t bytes_;
};

#if defined(WITH_LMDB)
class Lmdb final : public Peer {
 public:
  explicit Lmdb(const std::string& path) {
    mdb_env_create(&env_);
    mdb_env_set_mapsize(env_, 64ull << 30);
    if (mdb_env_open(env_, path.c_str(), MDB_NORDAHEAD | MDB_NOSYNC | MDB_WRITEMAP, 0644) != 0)
      throw std::runtime_error("lmdb does not open");
    begin(0);
    mdb_dbi_open(txn_, nullptr, MDB_INTEGERKEY, &dbi_);
    mdb_txn_commit(txn_);
    begin(MDB_RDONLY);
  }
  ~Lmdb() override {
    mdb_txn_abort(txn_);
    mdb_env_close(env_);
  }
  bool loaded() override {
    MDB_stat info;
    return mdb_stat(txn_, dbi_, &info) == 0 && info.ms_entries > 0;
  }
  bool load(const int64_t* rows, uint64_t count, const uint8_t* data) override {
    mdb_txn_abort(txn_);
    begin(0);
    bool good = true;
    for (uint64_t i = 0; i < count && good; ++i) {
      size_t key_word = size_t(rows[i]);
      MDB_val key{sizeof key_word, &key_word};
      MDB_val value{kRow, const_cast<uint8_t*>(data + i * kRow)};
      good = mdb_put(txn_, dbi_, &key, &value, MDB_APPEND) == 0;
    }
    good = mdb_txn_commit(txn_) == 0 && good;
    begin(MDB_RDONLY);
    return good;
  }
  bool gather(const int64_t* rows, uint32_t count, uint8_t* out) override {
    for (uint32_t i = 0; i < count; ++i) {
      size_t key_word = size_t(rows[i]);
      MDB_val key{sizeof key_word, &key_word}, value;
      if (mdb_get(txn_, dbi_, &key, &value) != 0) return false;
      memcpy(out + i * kRow, value.mv_data, kRow);
    }
    return true;
  }

 private:
  void begin(unsigned flags) { mdb_txn_begin(env_, nullptr, flags, &txn_); }
  MDB_env* env_ = nullptr;
  MDB_txn* txn_ = nullptr;
  MDB_dbi dbi_ = 0;
};
#endif

#if defined(WITH_ROCKSDB)
std::string big_endian(int64_t row) {
  std::string key(8, 0);
  for (int k = 0; k < 8; ++k) key[size_t(k)] = char(uint64_t(row) >> (56 - 8 * k));
  return key;
}

class Rocks final : public Peer {
 public:
  Rocks(const std::string& path, uint64_t cache_bytes) : path_(path) {
    options_.create_if_missing = true;
    options_.compression = rocksdb::kNoCompression;
    options_.use_direct_reads = true;
    options_.disable_auto_compactions = true;
    rocksdb::BlockBasedTableOptions table;
    table.no_block_cache = cache_bytes == 0;
    if (cache_bytes) options_.row_cache = rocksdb::NewLRUCache(cache_bytes);
    if (cache_bytes) table.block_cache = rocksdb::NewLRUCache(8 << 20);
    table.block_size = 4096;
    table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
    options_.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* db = nullptr;
    const auto status = rocksdb::DB::Open(options_, path, &db);
    if (!status.ok()) throw std::runtime_error(status.ToString());
    db_.reset(db);
  }
  bool loaded() override {
    std::string keys;
    db_->GetProperty("rocksdb.estimate-num-keys", &keys);
    return keys != "0" && !keys.empty();
  }
  bool load(const int64_t* rows, uint64_t count, const uint8_t* data) override {
    const std::string file = path_ + "/bulk-" + std::to_string(rows[0]) + ".sst";
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options_);
    if (!writer.Open(file).ok()) return false;
    for (uint64_t i = 0; i < count; ++i) {
      const rocksdb::Slice value(reinterpret_cast<const char*>(data + i * kRow), kRow);
      if (!writer.Put(big_endian(rows[i]), value).ok()) return false;
    }
    rocksdb::IngestExternalFileOptions ingest;
    ingest.move_files = true;
    return writer.Finish().ok() && db_->IngestExternalFile({file}, ingest).ok();
  }
  bool gather(const int64_t* rows, uint32_t count, uint8_t* out) override {
    std::vector<std::string> keys(count);
    std::vector<rocksdb::Slice> slices(count);
    for (uint32_t i = 0; i < count; ++i) {
      keys[i] = big_endian(rows[i]);
      slices[i] = keys[i];
    }
    rocksdb::ReadOptions read;
    read.async_io = true;
    std::vector<rocksdb::PinnableSlice> values(count);
    std::vector<rocksdb::Status> statuses(count);
    db_->MultiGet(read, db_->DefaultColumnFamily(), count, slices.data(), values.data(),
                  statuses.data());
    for (uint32_t i = 0; i < count; ++i) {
      if (!statuses[i].ok()) return false;
      memcpy(out + i * kRow, values[i].data(), kRow);
    }
    return true;
  }

 private:
  std::string path_;
  rocksdb::Options options_;
  std::unique_ptr<rocksdb::DB> db_;
};
#endif

Peer* make(const std::string& kind, const std::string& path, uint64_t argument) {
  if (kind == "serial") return new Serial(path);
  if (kind == "pool") return new Pool(path, uint32_t(argument));
  if (kind == "mmap") return new Map(path);
#if defined(WITH_LMDB)
  if (kind == "lmdb") return new Lmdb(path);
#endif
#if defined(WITH_ROCKSDB)
  if (kind == "rocksdb") return new Rocks(path, argument);
#endif
  return nullptr;
}

}  // namespace

extern "C" {

void* peer_open(const char* kind, const char* path, uint64_t argument) {
  try {
    return make(kind, path, argument);
  } catch (const std::exception&) {
    return nullptr;
  }
}
void peer_close(void* peer) { delete static_cast<Peer*>(peer); }
int peer_gather(void* peer, const int64_t* rows, uint32_t count, uint8_t* out) {
  return static_cast<Peer*>(peer)->gather(rows, count, out);
}
int peer_loaded(void* peer) { return static_cast<Peer*>(peer)->loaded(); }
int peer_load(void* peer, const int64_t* rows, uint64_t count, const uint8_t* data) {
  return static_cast<Peer*>(peer)->load(rows, count, data);
}

}  // extern "C"
